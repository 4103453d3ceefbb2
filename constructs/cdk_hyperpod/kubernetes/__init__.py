"""Teams, quotas and elastic training jobs as Kubernetes objects, and the content of a Helm chart. Uses neither AWS CDK nor a client.

`manifests.py` says in which order a stack applies them.
May import: config, facts, typed.
"""
