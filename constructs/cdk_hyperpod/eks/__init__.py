"""EKS as the orchestrator: control plane, add-ons, autoscaling, draining and teams.

Import what is in here where an EKS cluster is made and nowhere else: these modules load `aws_eks_v2`, which costs a
second of every synthesis, and kubectl's layer, which is an optional dependency.

May import: config, errors, facts, guard, kubernetes, loader, names, network, rules, storage, typed, _common.
"""

from __future__ import annotations

from .add_ons import HyperPodAddOns
from .control_plane import EksControlPlane
from .drainer import EksDrainer
from .teams import HyperPodTeams

__all__ = ["EksControlPlane", "EksDrainer", "HyperPodAddOns", "HyperPodTeams"]
