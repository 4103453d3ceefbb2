"""What several constructs need: Lambda functions, buckets, keys, assets, tags, removal, order in a stack, reasons for cdk-nag.

May import: _cdk_private, config, errors, typed.
"""
