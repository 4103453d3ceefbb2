#!/bin/bash
# LifeCycleConfig of a controller group names this script, and HyperPod runs it on every new node of the group. Given the name of
# a step, it runs that step alone.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/on_create.sh" controller "$@"
