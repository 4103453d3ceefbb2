"""Facts about AWS: instance types and regions (written by `tools/make_catalogue.py`), HyperPod's Helm chart (written by
`tools/make_device_plugins.py`), Kubernetes versions, and prefix lists and actions of S3.

May import: nothing.
"""
