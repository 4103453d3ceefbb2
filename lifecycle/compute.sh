#!/bin/bash
# What LifeCycleConfig of a compute group names: HyperPod runs it on every new node of the group. A step's name runs that
# step alone.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/on_create.sh" compute "$@"
