#!/bin/bash
# What LifeCycleConfig.OnCreate of a login group names: HyperPod runs it on every new node of the group.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/on_create.sh" login
