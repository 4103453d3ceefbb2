"""What `make deploy-local`, `diff-local`, `destroy-local` and `shell-local` run: `python -m cdk_hyperpod_local.commands`."""
