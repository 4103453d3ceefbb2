"""Teams, quotas and elastic training jobs as Kubernetes objects, and what a Helm chart has in it. No AWS CDK, no client.

`manifests.py` says in which order a stack applies them.
May import: config, facts, typed.
"""
