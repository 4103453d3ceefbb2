"""What AWS says and no file can change: instance types and zones (`tools/make_catalogue.py` writes them), prefix lists of S3.

May import: nothing.
"""
