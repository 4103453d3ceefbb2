"""A cluster as it is and as a deployment wants it, as frozen values: read from SageMaker's replies and from a resource's properties. Pure.

May import: kernel.
"""
