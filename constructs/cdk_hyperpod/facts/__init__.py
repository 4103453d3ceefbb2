"""What AWS says and no file can change: instance types, Regions, prefix lists of S3. `make catalogue` writes most of it.

May import: nothing.
"""
