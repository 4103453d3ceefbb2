"""`cdk-hyperpod patch`: `refusals` and `steps` decide and are pure, `patcher` acts, and `patch` is the command."""
