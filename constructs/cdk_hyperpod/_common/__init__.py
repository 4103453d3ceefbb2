"""What several constructs need: reasons for findings of cdk-nag, functions, buckets, keys, removal, order in a stack.

May import: config, errors, typed.
"""
