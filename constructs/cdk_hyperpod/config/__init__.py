"""The typed model: what a cluster file may say, and the values that the constructs take. Nothing here imports aws_cdk."""
