"""Frozen values that are described by their own annotations: built from plain data, validated, and written down as a schema.

May import: errors, _cdk_private.
"""
