"""The code of the Lambda functions: one folder each, and `common`. A function is uploaded with its folder and `common` alone.

May import: boto3, botocore, and nothing of the library.
"""
