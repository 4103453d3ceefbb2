"""The commands of `cdk-hyperpod local`, which `make deploy-local` and its like call."""
