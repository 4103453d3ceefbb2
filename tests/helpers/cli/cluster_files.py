"""Cluster files for commands that write into them."""

from __future__ import annotations

FILE = """\
# Ours.
name: small   # a name
region: us-west-2
network:
  availability_zones: [us-west-2c]
instance_groups:
  - name: head
    instance_type: ml.m5.xlarge
    instance_count: 1
    node_type: controller
  # The big ones.
  - {name: work, instance_type: ml.p5.48xlarge, instance_count: 4, node_type: compute, partition: "p5"}   # 32 GPUs
"""
