"""The foundation's guard: refuses a change of an immutable setting before a stack has changed anything.

Standard library and botocore only, by relative imports. `plan` shows the same decision before a deployment.
May import: common, kernel.
"""
