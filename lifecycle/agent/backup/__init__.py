"""The backup of a node: its job, which the agent gives to Slurm."""
