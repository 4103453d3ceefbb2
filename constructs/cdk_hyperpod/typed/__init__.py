"""Frozen values that their own annotations describe: built from plain data, validated, and written as a schema.

May import: errors, _cdk_private.
"""
