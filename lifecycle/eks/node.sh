#!/bin/bash
# What LifeCycleConfig.OnCreate of every instance group names under EKS. HyperPod runs it as root on each new node, once
# for each root volume, before the node joins the EKS cluster. Every exit code but 0 fails the node.
#
# The HyperPod image brings the container runtime, the kubelet and the drivers, and pods mount the file system through
# its CSI driver, so a node needs nothing from here: this is the place for steps of your own (`lifecycle_scripts`).
set -euo pipefail

printf '%s INFO %s: nothing to do on %s\n' "$(date -u +%FT%TZ)" "${0##*/}" "$(uname -n)"
