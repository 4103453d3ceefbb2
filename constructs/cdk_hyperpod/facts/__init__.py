"""Facts about AWS: instance types and regions (written by `tools/make_catalogue.py`), and prefix lists of S3.

May import: nothing.
"""
