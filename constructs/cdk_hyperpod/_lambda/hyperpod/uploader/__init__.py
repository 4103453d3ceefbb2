"""Uploads the lifecycle scripts, each folder under a prefix that is the hash of its content (docs/adr/0020).

Standard library and botocore only, by relative imports. The construct imports `content`, so both compute the same hash.
May import: common, kernel.
"""
