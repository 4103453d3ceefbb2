"""What `make deploy-local`, `diff-local`, `destroy-local` and `shell-local` run: `python -m local_aws.commands`."""
