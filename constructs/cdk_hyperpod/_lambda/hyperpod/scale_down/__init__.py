"""The scale-down custom resource: deletes exactly the nodes and groups that a deployment requests.

`poll` looks at the cluster by `aws`, decides by `decide`, has nodes drained by `drain`, and changes the cluster by `aws`. `model` is
what they speak of, `messages` what a user reads.
Standard library and botocore only, by relative imports. Of the library only `cli/` imports it.
May import: common, scale_down.poll.
"""
