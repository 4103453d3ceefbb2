"""Random patches in virtual time: `cdk-hyperpod patch` against a HyperPod that is slow, silent or wrong, and a judge beside it."""
