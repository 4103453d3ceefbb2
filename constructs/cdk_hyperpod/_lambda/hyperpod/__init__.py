"""The code of the Lambda functions: one folder each, and `common` and `kernel`, which are uploaded with each.

May import: boto3, botocore, and nothing of the library.
"""
