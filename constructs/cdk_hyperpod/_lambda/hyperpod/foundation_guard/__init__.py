"""The foundation's guard: refuses a change of a setting that cannot change after creation, before a stack has changed anything.

Standard library and botocore only, by relative imports. `plan` asks it the same, before a deployment.
May import: common.
"""
