"""Actions of S3 in IAM policies."""

from __future__ import annotations

PUTS = ("s3:PutObject", "s3:ReplicateObject")
"""A part of a multipart upload is a PutObject too. Another bucket's replication rule writes with its own permissions."""
WRITES = ("s3:DeleteObject", "s3:DeleteObjectVersion", "s3:PutObject", "s3:ReplicateDelete", "s3:ReplicateObject")
"""Everything that changes what a reader of an object gets. No policy can deny deletions by S3's lifecycle rules."""
