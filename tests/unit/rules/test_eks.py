"""Rules of EKS and its teams: each refuses one thing, in full words, and is silent about what lies next to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from helpers.judging import REMOVED, SMALL, Changes, changed, findings_of, told

EKS: Mapping[str, Any] = yaml.safe_load("""
name: small
region: us-west-2
orchestrator: eks
network:
  availability_zones: [us-west-2c, us-west-2a]
eks: {dependencies_chart: installed}
instance_groups:
- {name: system, instance_type: ml.m5.xlarge, instance_count: 2, min_instance_count: 1}
- {name: work, instance_type: ml.p5.48xlarge, instance_count: 8}
""")
ADMIN = "arn:aws:iam::111122223333:role/admin"
PLAN = "arn:aws:sagemaker:us-west-2:111122223333:training-plan/large"
LARGE = {"instance_groups.0.instance_type": "ml.m5.4xlarge"}
ROLE = "arn:aws:iam::111122223333:role/pods"
TEAM = {"name": "research", "quota": {"ml.p5.48xlarge": 8}}
TYPES = "ml.p5.48xlarge or ml.trn1.32xlarge"
SUBNET = {"subnet_id": "subnet-0123456789abcdef0", "availability_zone": "us-west-2c"}
OTHER_SUBNET = {"subnet_id": "subnet-0123456789abcdef1", "availability_zone": "us-west-2a"}
OLD_VPC = {
    "network": {
        "vpc_id": "vpc-0123456789abcdef0",
        "subnets": [SUBNET, OTHER_SUBNET],
        "endpoint_security_group_id": "sg-0123456789abcdef0",
    }
}
OLD_EKS = {**OLD_VPC, "eks.existing_cluster": {"name": "old", "security_group_id": "sg-0123456789abcdef0"}}
IN_AZ3 = {
    **OLD_VPC["network"],
    "subnets": [{**SUBNET, "availability_zone": "use1-az1"}, {**OTHER_SUBNET, "availability_zone": "use1-az3"}],
}
SCALED = {"eks.autoscaling": {"instance_groups": ["work"]}, "instance_groups.1.instance_count": 0}
NO_GOVERNANCE = {"eks.add_ons": {"task_governance": {"enabled": False}}}
CHART_FIRST = "warning: eks.dependencies_chart: is installed, and this file makes the EKS cluster, which begins without the chart; deploy hyperpod-small-eks first, install the chart, then deploy the rest (docs/eks.md)"  # fmt: skip
KEY = "use 1 to 63 letters, digits and -_., a letter or digit at either end, behind a domain and a slash if you like, such as example.com/pool"
VALUE = "use 1 to 63 letters, digits and -_., a letter or digit at either end"
QUANTITY = 'write it as "64", "500m" or "5120Gi"'
OPEN = "reach the API, so that its authentication alone keeps people out; name the addresses that need it, or remove it for an API that is reached from the VPC only"
PRIVATE = "is a private range, which EKS refuses: nobody comes from there over the internet; name the addresses that the internet sees, or remove it: who is in the VPC gets in without it"  # fmt: skip
RANGES = "203.0.113.0/24, or 203.0.113.5/32 for"
ALSO_FIXED = {"name": "spare", "instance_type": "ml.g6.xlarge", "instance_count": 4}
TAKES_NO = "an autoscaled group cannot have it: HyperPod's autoscaler takes on-demand nodes without deep health checks; remove it, or take the group out of eks.autoscaling"  # fmt: skip


NO_EKS = "and the control plane is in the first two zones; name two others first; groups of nodes may be in it"
NO_MINIMUM = "no group without a taint has a minimum, so the cluster is ready without a node for CoreDNS and the operators, which may time out before there is one; set min_instance_count on a group without a taint, best one without accelerators"  # fmt: skip
NOT_GOVERNED = "applies only under task governance, which is off; remove it, or turn task governance on"
FEW_ADDRESSES = "has addresses for 14 pods at most"


def judge_whole(changes: Changes, base: Mapping[str, Any] = EKS) -> list[str]:
    return told(findings_of(yaml.safe_dump(changed(changes, base), sort_keys=False, allow_unicode=True)))


def judge(changes: Changes, base: Mapping[str, Any] = EKS) -> list[str]:
    """Without the warnings that the small cluster itself gets."""
    said = judge_whole(changes, base)
    return [message for message in said if message != CHART_FIRST and FEW_ADDRESSES not in message]


@pytest.mark.parametrize(
    ("bad", "messages", "good"),
    [
        # The orchestrator, and what only the other one has
        pytest.param({"eks": REMOVED}, ["eks: is missing, and the orchestrator is eks; add eks: {dependencies_chart: …} with the path of HyperPod's Helm chart, or installed"], {}, id="no EKS"),
        pytest.param({"instance_groups.1.node_type": "compute"}, ["instance_groups[work].node_type: applies only under Slurm; remove it"], {}, id="node type"),
        pytest.param({"instance_groups.1.partition": "p5"}, ["instance_groups[work].partition: applies only under Slurm; remove it"], {}, id="partition"),
        pytest.param({"instance_groups.1.labels": {f"k{n}": "v" for n in range(51)}}, ["instance_groups[work].labels: there are 51 labels; use at most 50"], {"instance_groups.1.labels": {f"k{n}": "v" for n in range(50)}}, id="labels"),
        pytest.param({"instance_groups.1.labels": {"x y": "z z"}}, [f"instance_groups[work].labels.x y: a label cannot have the key 'x y'; {KEY}", f"instance_groups[work].labels.x y: a label cannot have the value 'z z'; {VALUE}"], {"instance_groups.1.labels": {"example.com/x_y": "z.z"}}, id="label"),
        pytest.param({"instance_groups.1.labels": {"Example.com/pool": ""}}, [f"instance_groups[work].labels.Example.com/pool: a label cannot have the key 'Example.com/pool'; {KEY}", f"instance_groups[work].labels.Example.com/pool: a label cannot have the value ''; {VALUE}"], {"instance_groups.1.labels": {f"{'a' * 253}/{'b' * 63}": "c" * 63}}, id="label's domain, empty value"),
        pytest.param({"instance_groups.1.labels": {"/pool": "c" * 64}}, [f"instance_groups[work].labels./pool: a label cannot have the key '/pool'; {KEY}", f"instance_groups[work].labels./pool: a label cannot have the value '{'c' * 64}'; {VALUE}"], {"instance_groups.1.labels": {"pool": "c"}}, id="label without its domain, long value"),
        pytest.param({"instance_groups.1.taints": [{"key": "a b", "effect": "no_schedule", "value": "!!"}]}, [f"instance_groups[work].taints[0]: a taint cannot have the key 'a b'; {KEY}", f"instance_groups[work].taints[0]: a taint cannot have the value '!!'; {VALUE}"], {"instance_groups.1.taints": [{"key": "nvidia.com/gpu", "effect": "no_schedule"}]}, id="taint"),
        pytest.param({"instance_groups.1.taints": [{"key": "a", "effect": "no_schedule", "value": value} for value in "bc"]}, ["instance_groups[work].taints: 2 taints have the key 'a' and the effect no_schedule; keep one of them"], {"instance_groups.1.taints": [{"key": "a", "effect": effect} for effect in ("no_schedule", "no_execute")]}, id="taint twice"),
        pytest.param({"eks.nodes": 3}, ["eks.nodes: is not a setting; remove it, or use one of dependencies_chart, dependencies_chart_digest, kubernetes_version, existing_cluster, public_access_cidrs, admin_role_arns, image_registry, autoscaling, add_ons, priority_classes, task_governance"], {}, id="unknown key"),
        pytest.param({"eks.add_ons": {"coredms": {}}}, ["eks.add_ons.coredms: is not a setting; did you mean coredns?"], {"eks.add_ons": {"coredns": {"version": "v1.13.1-eksbuild.1"}}}, id="unknown add-on"),
        # Zones
        pytest.param({"network.availability_zones": ["us-west-2c"]}, ["warning: network.availability_zones: EKS needs subnets in two zones: the control plane gets one in us-west-2a too, for good, which no node uses; name both, [us-west-2c, us-west-2a], or before the first deployment another one that has EKS (use1-az3, usw1-az2 and cac1-az3 do not)"], {}, id="one zone"),
        pytest.param({"region": "us-west-1", "network.availability_zones": ["us-west-1a"]}, ["network.availability_zones: EKS needs subnets in two zones, and the network names 'us-west-1a' alone; name two, the one that has the capacity first, such as [usw1-az1, usw1-az3] (in a cluster file the first alone is enough)"], {}, id="one zone where the letters of the others are not known"),
        pytest.param({"network": {}}, ["network.availability_zones: EKS needs subnets in two zones, and the network names none; name two, the one that has the capacity first, such as [us-west-2a, us-west-2b] (in a cluster file the first alone is enough)"], {}, id="no zone"),
        pytest.param({"region": "us-east-1", "network.availability_zones": ["use1-az3"]}, [f"network.availability_zones: EKS is not in use1-az3, {NO_EKS}"], {"region": "us-east-1", "network.availability_zones": ["use1-az1", "use1-az2", "use1-az3"]}, id="a zone without EKS"),
        pytest.param({"region": "us-east-1", "network.availability_zones": ["use1-az1", "use1-az3"]}, [f"network.availability_zones: EKS is not in use1-az3, {NO_EKS}"], {"region": "us-east-1", "network.availability_zones": ["use1-az1", "use1-az2"], "instance_groups.1.availability_zone": "use1-az3"}, id="second zone without EKS"),
        pytest.param({"region": "us-east-1", "network": IN_AZ3}, [f"network.subnets: EKS is not in use1-az3, {NO_EKS}"], {"region": "us-east-1", "network": IN_AZ3, "eks.existing_cluster": OLD_EKS["eks.existing_cluster"]}, id="subnet in a zone without EKS"),
        pytest.param({"instance_groups.0.min_instance_count": 0}, [f"warning: instance_groups: {NO_MINIMUM}"], {}, id="no minimum"),
        pytest.param({"instance_groups.0.min_instance_count": 0, "instance_groups.1.min_instance_count": 1, "instance_groups.1.taints": [{"key": "a", "effect": "no_schedule"}]}, [f"warning: instance_groups: {NO_MINIMUM}"], {"instance_groups.1.min_instance_count": 1, "instance_groups.1.taints": [{"key": "a", "effect": "no_schedule"}]}, id="a minimum on a tainted group alone"),
        pytest.param({"instance_groups.0.instance_count": 0, "instance_groups.0.min_instance_count": 0, "instance_groups.1.min_instance_count": 1, "instance_groups.1.taints": [{"key": "a", "effect": "no_execute"}]}, [f"warning: instance_groups: {NO_MINIMUM}"], {}, id="an untainted group without nodes"),
        pytest.param({**SCALED, "instance_groups.0.taints": [{"key": "a", "effect": "no_schedule"}]}, [f"warning: instance_groups: {NO_MINIMUM}"], SCALED, id="an untainted group of the autoscaler alone"),
        pytest.param({"node_provisioning_mode": "standard", "instance_groups.0.min_instance_count": 0, "instance_groups.0.instance_count": 0, "instance_groups.1.taints": [{"key": "a", "effect": "no_schedule"}]}, ["warning: instance_groups: no group without a taint has a node, so CoreDNS and the operators find none that takes them; raise instance_count of a group without a taint, best one without accelerators"], {"node_provisioning_mode": "standard", "instance_groups.0.min_instance_count": 0}, id="no open node under standard provisioning"),
        pytest.param({f"instance_groups.{n}.taints": [{"key": "a", "effect": effect}] for n, effect in enumerate(("no_schedule", "no_execute"))}, ["warning: instance_groups: every group has a taint, so CoreDNS and the operators find no node that takes them; leave one group without, best one with a minimum and without accelerators"], {"instance_groups.0.taints": [{"key": "a", "effect": "prefer_no_schedule"}], "instance_groups.1.taints": [{"key": "a", "effect": "no_schedule"}]}, id="taints everywhere"),
        pytest.param({"instance_groups.1.spot": True, "tiered_storage": {}}, ["warning: eks.add_ons.training_operator: runs elastic jobs, and AWS excludes elastic training on spot capacity (work) and with managed tiered checkpointing (tiered_storage); give such jobs one size there (job render --nodes), or leave that out"], {"instance_groups.1.spot": True, "tiered_storage": {}, "eks.add_ons": {"training_operator": {"enabled": False}}}, id="elastic training on spot"),
        pytest.param({**OLD_EKS, "teams": [{**TEAM, "pod_role_arn": ROLE}]}, ["warning: teams[research].pod_role_arn: pods get it from EKS's pod identity agent, and that add-on is off here; set eks.add_ons.eks_pod_identity_agent.enabled: true, unless the EKS cluster has it already"], {"teams": [{**TEAM, "pod_role_arn": ROLE}]}, id="no pod identity agent"),
        pytest.param({**OLD_EKS, "network": {**OLD_VPC["network"], "subnets": [SUBNET]}}, ["network.subnets: EKS needs subnets in two zones, and the network names 'us-west-2c' alone; add a subnet of another zone behind the cluster's own"], OLD_EKS, id="one subnet"),
        # The cluster
        pytest.param({"eks.kubernetes_version": "1.29"}, ["eks.kubernetes_version: must be one of 1.34, 1.35, got '1.29'; use one of these"], {"eks.kubernetes_version": "1.35"}, id="version"),
        pytest.param({"eks.kubernetes_version": 1.34}, ['eks.kubernetes_version: must be one of 1.34, 1.35, got 1.34; put it in quotes, such as "1.34"'], {"eks.kubernetes_version": "1.34"}, id="version without quotes"),
        pytest.param({"eks.kubernetes_version": 1.30}, ['eks.kubernetes_version: must be one of 1.34, 1.35, got 1.3; put it in quotes, such as "1.34"'], {}, id="version that YAML shortens"),
        pytest.param({"eks.kubernetes_version": 2}, ['eks.kubernetes_version: must be one of 1.34, 1.35, got 2; put it in quotes, such as "1.34"'], {}, id="version that is a whole number"),
        pytest.param({"eks.public_access_cidrs": ["anywhere"]}, ["eks.public_access_cidrs[0]: must be an IPv4 range such as 203.0.113.0/24, got 'anywhere'; change it"], {"eks.public_access_cidrs": ["203.0.113.0/24"]}, id="range"),
        pytest.param({"eks.public_access_cidrs": ["203.0.113.0/24", "999.1.1.1/99"]}, [f"eks.public_access_cidrs[1]: '999.1.1.1/99' is not an IPv4 range; use one such as {RANGES} one address"], {"eks.public_access_cidrs": ["203.0.113.5/32"]}, id="range that is none"),
        pytest.param({"eks.public_access_cidrs": ["203.0.113.5/24"]}, [f"eks.public_access_cidrs[0]: '203.0.113.5/24' is not where a range begins; use {RANGES} the one address"], {"eks.public_access_cidrs": ["203.0.113.0/24"]}, id="address with a range's length"),
        pytest.param({"eks.public_access_cidrs": ["10.0.0.0/8", "192.168.7.9/24", "127.0.0.1/32"]}, [f"eks.public_access_cidrs[0]: '10.0.0.0/8' {PRIVATE}", f"eks.public_access_cidrs[1]: '192.168.7.9/24' {PRIVATE}", f"eks.public_access_cidrs[2]: '127.0.0.1/32' {PRIVATE}"], {"eks.public_access_cidrs": ["11.0.0.0/16"]}, id="private ranges"),
        pytest.param({"eks.public_access_cidrs": ["0.0.0.0/0"]}, [f"warning: eks.public_access_cidrs: lets the whole internet {OPEN}"], {"eks.public_access_cidrs": []}, id="the whole internet"),
        pytest.param({"eks.public_access_cidrs": ["0.0.0.0/1", "128.0.0.0/1"]}, [f"warning: eks.public_access_cidrs: lets the whole internet {OPEN}"], {"eks.public_access_cidrs": []}, id="the whole internet in halves"),
        pytest.param({"eks.public_access_cidrs": ["11.0.0.0/17", "11.0.128.0/17", "203.0.113.5/32"]}, [f"warning: eks.public_access_cidrs: lets 65,537 addresses {OPEN}"], {"eks.public_access_cidrs": ["11.0.0.0/17", "11.0.128.0/17", "11.0.7.0/24"]}, id="more than a /16, ranges that overlap counted once"),
        pytest.param({"eks.public_access_cidrs": ["203.0.113.0/24"] * 2}, ["eks.public_access_cidrs: '203.0.113.0/24' is there twice; name it once"], {"eks.public_access_cidrs": ["203.0.113.0/24"]}, id="range twice"),
        pytest.param({"eks.admin_role_arns": [ADMIN, ADMIN]}, [f"eks.admin_role_arns: '{ADMIN}' is there twice; name it once"], {"eks.admin_role_arns": [ADMIN, f"{ADMIN}2"]}, id="administrator twice"),
        pytest.param({"eks.existing_cluster": OLD_EKS["eks.existing_cluster"]}, ["eks.existing_cluster: an existing EKS cluster has a VPC, and network describes a new one; add network.vpc_id and network.subnets of the EKS cluster's VPC"], OLD_EKS, id="existing cluster, new VPC"),
        pytest.param({**OLD_EKS, "eks.kubernetes_version": "1.35"}, ["eks.kubernetes_version: describes a new EKS cluster, and existing_cluster names one; remove one of the two"], OLD_EKS, id="version of an existing cluster"),
        pytest.param({"eks.add_ons": {"vpc_cni": {"enabled": False}}}, ["eks.add_ons.vpc_cni.enabled: a new EKS cluster does not work without it; remove the line"], {**OLD_EKS, "eks.add_ons": {"vpc_cni": {"enabled": False}}}, id="no VPC CNI"),
        pytest.param({"eks.add_ons": {"observability": {"version": "v1.2.0"}}}, ["eks.add_ons.observability.version: names a version of an add-on that is off; add enabled: true, or remove it"], {"eks.add_ons": {"observability": {"version": "v1.2.0", "enabled": True}}}, id="version of an add-on that is off"),
        pytest.param({"eks.add_ons": {"training_operator": {"version": "latest"}}}, ["eks.add_ons.training_operator.version: must be a version such as v1.3.0-eksbuild.1, got 'latest'; change it"], {"eks.add_ons": {"training_operator": {"version": "v1.3.0-eksbuild.1"}}}, id="add-on version"),
        # The chart, as far as the file alone tells
        pytest.param({"eks.dependencies_chart_digest": f"sha256:{'0' * 64}"}, ["eks.dependencies_chart_digest: is about a chart that this library installs, and dependencies_chart is installed; remove it, or name the chart's path"], {}, id="digest of an installed chart"),
        pytest.param({"eks.image_registry": "registry.example.com/mirror"}, ["eks.image_registry: is about a chart that this library installs, and dependencies_chart is installed; remove it, or name the chart's path"], {}, id="registry of an installed chart"),
        # Autoscaling
        pytest.param({**SCALED, "eks.autoscaling": {"instance_groups": []}}, ["eks.autoscaling.instance_groups: there are 0 groups; name 1 to 10"], SCALED, id="no autoscaled group"),
        pytest.param({**SCALED, "eks.autoscaling": {"instance_groups": ["gone"]}}, ["eks.autoscaling.instance_groups[0]: no instance group has the name 'gone'; name one of instance_groups"], SCALED, id="unknown autoscaled group"),
        pytest.param({**SCALED, "eks.autoscaling": {"instance_groups": ["work", "work"]}, "instance_groups.1.instance_count": 3, "instance_groups.1.min_instance_count": 3}, ["eks.autoscaling.instance_groups: 'work' is there twice; name it once", "instance_groups[work].min_instance_count: the autoscaler owns the count, and begins at 0, got 3; remove it, or take the group out of eks.autoscaling"], SCALED, id="autoscaled group twice"),
        pytest.param({**SCALED, "eks.autoscaling": {"instance_groups": ["work"], "limits": {"cpu": "abc", "memory": "-1"}}}, [f"eks.autoscaling.limits.cpu: must be a quantity, got 'abc'; {QUANTITY}", f"eks.autoscaling.limits.memory: must be a quantity, got '-1'; {QUANTITY}"], {**SCALED, "eks.autoscaling": {"instance_groups": ["work"], "limits": {"cpu": "1536", "memory": "5120Gi"}}}, id="limits that are no quantities"),
        pytest.param({**SCALED, "eks.autoscaling": {"instance_groups": ["work"], "limits": {"gpu": "8", "requests.cpu": "8", "zebras": "8"}}}, ["eks.autoscaling.limits.gpu: nodes have no resource 'gpu'; did you mean nvidia.com/gpu?", "eks.autoscaling.limits.requests.cpu: nodes have no resource 'requests.cpu'; did you mean cpu?", "eks.autoscaling.limits.zebras: nodes have no resource 'zebras'; use one such as cpu, memory, nvidia.com/gpu"], {**SCALED, "eks.autoscaling": {"instance_groups": ["work"], "limits": {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "nodes": "4"}}}, id="limits of what no node has"),
        pytest.param({**SCALED, "instance_groups.1.instance_count": 3}, ["warning: instance_groups[work].instance_count: is 3, and the autoscaler terminates the nodes that no pod needs; set it to 0 for a new group; to change a cluster, to what the group holds"], SCALED, id="count of an autoscaled group"),
        pytest.param({**SCALED, "instance_groups.1.instance_count": 3, "instance_groups.1.min_instance_count": 3}, ["instance_groups[work].min_instance_count: the autoscaler owns the count, and begins at 0, got 3; remove it, or take the group out of eks.autoscaling"], SCALED, id="minimum of an autoscaled group"),
        pytest.param({**SCALED, "instance_groups.1.spot": True}, [f"instance_groups[work].spot: {TAKES_NO}"], SCALED, id="autoscaled spot"),
        pytest.param({**SCALED, "instance_groups.1.training_plan_arn": PLAN}, [f"instance_groups[work].training_plan_arn: {TAKES_NO}"], SCALED, id="autoscaled training plan"),
        pytest.param({**SCALED, "instance_groups.1.on_start_deep_health_checks": ["instance_stress"]}, [f"instance_groups[work].on_start_deep_health_checks: {TAKES_NO}"], SCALED, id="autoscaled health checks"),
        pytest.param({**SCALED, "node_provisioning_mode": "standard", "instance_groups.0.min_instance_count": 0}, ["eks.autoscaling: needs continuous provisioning; set node_provisioning_mode to continuous, or remove it"], SCALED, id="autoscaling under standard provisioning"),
        # Task governance and priorities
        pytest.param({"eks.task_governance": {"priority_classes": [{"name": "training", "weight": 101}]}}, ["eks.task_governance.priority_classes[training].weight: must be 0 to 100, got 101; change it"], {"eks.task_governance": {"priority_classes": [{"name": "training", "weight": 100}]}}, id="weight"),
        pytest.param({"eks.task_governance": {"priority_classes": [{"name": f"k{n}", "weight": n} for n in range(11)]}}, ["eks.task_governance.priority_classes: there are 11, and a policy holds 10; use fewer"], {"eks.task_governance": {"priority_classes": [{"name": f"k{n}", "weight": n} for n in range(10)]}}, id="too many weights"),
        pytest.param({**NO_GOVERNANCE, "eks.task_governance": {"fair_share": False}}, ["eks.task_governance: is a policy of task governance, which is off; remove eks.add_ons.task_governance, or this"], NO_GOVERNANCE, id="policy without task governance"),
        pytest.param({"eks.priority_classes": [{"name": "a", "value": 1}, {"name": "a", "value": 2}]}, ["eks.priority_classes: 2 classes have the name 'a'; keep one of them"], {"eks.priority_classes": [{"name": "a", "value": 1}]}, id="priority class twice"),
        # Teams
        pytest.param({"teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 9}}]}, ["teams: the shares of ml.p5.48xlarge add up to 9 nodes (research 9), and the cluster has 8; lower a quota and let its team borrow (borrow_limit), or raise instance_count"], {"teams": [TEAM]}, id="shares"),
        pytest.param({**SCALED, "instance_groups.2": ALSO_FIXED, "teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 70, "ml.g6.xlarge": 5}}]}, ["teams: the shares of ml.g6.xlarge add up to 5 nodes (research 5), and the cluster has 4; lower a quota and let its team borrow (borrow_limit), or raise instance_count"], {**SCALED, "instance_groups.2": ALSO_FIXED, "teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 70, "ml.g6.xlarge": 4}}]}, id="shares of a group with a fixed count, beside an autoscaled one"),
        pytest.param({**SCALED, "teams": [{**TEAM, "quota": {"ml.p5e.48xlarge": 1}}]}, ["teams[research].quota.ml.p5e.48xlarge: no instance group has ml.p5e.48xlarge; use ml.m5.xlarge or ml.p5.48xlarge, or add a group"], {**SCALED, "teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 1000}}]}, id="quota of a type that no group has, under autoscaling"),
        pytest.param({**SCALED, "instance_groups.2": {**ALSO_FIXED, "instance_type": "ml.p5.48xlarge"}, "teams": [{**TEAM, "quota": {"ml.p5.48xlarg": 70}}]}, ["teams[research].quota.ml.p5.48xlarg: HyperPod has no instance type 'ml.p5.48xlarg'; did you mean ml.p5.48xlarge?"], {**SCALED, "instance_groups.2": {**ALSO_FIXED, "instance_type": "ml.p5.48xlarge"}, "teams": [{**TEAM, "quota": {"ml.p5.48xlarge": 70}}]}, id="a type that a fixed group and an autoscaled one have"),
        pytest.param({"teams": [{**TEAM, "quota": {"ml.m5.xlarge": 2}, "default_vcpus": 7, "default_memory_gib": 23}]}, ["teams[research].default_vcpus: a container that declares nothing gets 7, and the team's quota holds 6 (requests.cpu); lower it, or raise the quota: Kubernetes would refuse every such pod", "teams[research].default_memory_gib: a container that declares nothing gets 23Gi, and the team's quota holds 22Gi (requests.memory); lower it, or raise the quota: Kubernetes would refuse every such pod"], {"teams": [{**TEAM, "quota": {"ml.m5.xlarge": 2}, "default_vcpus": 6, "default_memory_gib": 22}]}, id="defaults beyond the quota"),
        pytest.param({"teams": [{**TEAM, "hard": {"requests.ephemeral-storage": "500Mi"}}]}, ["teams[research].hard.requests.ephemeral-storage: a container that declares nothing gets 1Gi, and the team's quota holds 500Mi (requests.ephemeral-storage); raise it: Kubernetes would refuse every such pod"], {"teams": [{**TEAM, "hard": {"requests.ephemeral-storage": "1Gi"}}]}, id="less disk than a silent container requests"),
        pytest.param({**NO_GOVERNANCE, "teams": [{**TEAM, "patch_workloads": True, "fair_share_weight": 50}]}, [f"teams[research].patch_workloads: {NOT_GOVERNED}", f"teams[research].fair_share_weight: {NOT_GOVERNED}"], {"teams": [{**TEAM, "patch_workloads": True, "fair_share_weight": 50}]}, id="what only task governance knows"),
        pytest.param({"account": "444455556666", "teams": [{**TEAM, "pod_role_arn": ROLE}]}, [f"teams[research].pod_role_arn: '{ROLE}' is in account 111122223333, and EKS gives pods only roles of the cluster's account, 444455556666; name a role of the cluster's account, which may assume the other one"], {"account": "111122223333", "teams": [{**TEAM, "pod_role_arn": ROLE}]}, id="pod role of another account"),
        pytest.param({"teams": [{**TEAM, "quota": {"ml.p5.48xlarge": "8"}}]}, ["teams[research].quota.ml.p5.48xlarge: must be a whole number, got '8'; write digits without quotes"], {"teams": [TEAM]}, id="quota in quotes"),
        pytest.param({"teams": [{"name": "research"}]}, ["teams[research].quota: is missing, and task governance gives each team a share; add one such as {ml.p5.48xlarge: 8}"], {**NO_GOVERNANCE, "teams": [TEAM]}, id="no quota"),
        pytest.param({**NO_GOVERNANCE, "teams": [{"name": "research"}]}, ["warning: teams[research].quota: is missing: the team 'research' may take every node of the cluster; add one such as {ml.p5.48xlarge: 8}, or acknowledge that it has no ceiling"], {**NO_GOVERNANCE, "teams": [TEAM]}, id="no quota without task governance"),
        pytest.param({**SCALED, **NO_GOVERNANCE, "teams": [{"name": "research"}]}, ["teams[research].quota: is missing, and autoscaling is on: the team's requests could provision nodes without limit; add one such as {ml.p5.48xlarge: 8}"], {**SCALED, **NO_GOVERNANCE, "teams": [TEAM]}, id="no quota under autoscaling"),
        pytest.param({**NO_GOVERNANCE, "teams": [{**TEAM, "namespace": "kube-system"}]}, ["teams[research].namespace: the namespace 'kube-system' belongs to Kubernetes, EKS or HyperPod; use one of the team's own"], {**NO_GOVERNANCE, "teams": [{**TEAM, "namespace": "science"}]}, id="namespace kube-system"),
        pytest.param({"teams": [{**TEAM, "namespace": "science"}]}, ["teams[research].namespace: under task governance HyperPod makes the namespace hyperpod-ns-research, got 'science'; remove it, or turn task governance off"], {"teams": [{**TEAM, "namespace": "hyperpod-ns-research"}]}, id="namespace under task governance"),
        pytest.param({"eks.admin_role_arns": [ADMIN], "teams": [{**TEAM, "role_arns": [ADMIN]}]}, [f"teams[research].role_arns: '{ADMIN}' is an administrator too, and EKS has one access entry for a role; remove it here: administrators may do everything that a team may"], {"eks.admin_role_arns": [ADMIN], "teams": [TEAM]}, id="administrator in a team"),
        pytest.param({"teams": [{**TEAM, "members": []}]}, ["teams[research].members: is not a setting; remove it, or use one of name, quota, borrow_limit, absolute_borrow_limits, hard, namespace, pod_security, role_arns, pod_role_arn, priority_classes, patch_workloads, fair_share_weight, default_vcpus, default_memory_gib"], {"teams": [TEAM]}, id="unknown key of a team"),
    ],
)  # fmt: skip
def test_rule(bad: Changes, messages: list[str], good: Changes) -> None:
    assert judge(bad) == messages
    assert judge(good) == []


@pytest.mark.parametrize(
    ("setting", "value"), [("eks", {"dependencies_chart": "installed"}), ("teams", [TEAM])], ids=["eks", "teams"]
)
def test_under_slurm_nothing_of_eks_has_a_meaning(setting: str, value: object) -> None:
    assert judge({setting: value}, SMALL) == [f"{setting}: applies only under EKS; remove it, or set orchestrator: eks"]


def test_what_the_subnets_hold_counts_the_endpoints_of_eks_and_more_addresses_for_each_p5() -> None:
    # A /24 less 5 of AWS's own and 13 endpoints holds 2 nodes of 81 addresses; a /21 network is cut in eight of them.
    assert judge({"network.cidr": "10.0.0.0/21", "instance_groups.1.instance_count": 2}) == []
    assert judge({"network.cidr": "10.0.0.0/21", "instance_groups.1.instance_count": 3}) == [
        (
            "network: the subnet 10.0.2.0/24 has 251 addresses, and its nodes need 258 ('work' alone 243); use a larger "
            "range, or place groups in several zones"
        )
    ]


def test_a_chart_that_cannot_be_installed_yet_is_a_warning() -> None:
    assert judge_whole(LARGE) == [CHART_FIRST]
    assert judge_whole({**OLD_EKS, **LARGE}) == []


def test_a_type_of_few_addresses_is_a_warning() -> None:
    (_, said) = judge_whole({"instance_groups.0.instance_type": "ml.m5.2xlarge"})
    assert said == (
        "warning: instance_groups[system]: a node of ml.m5.2xlarge has addresses for 14 pods at most, those of HyperPod's "
        "own daemons included; use a type of 16 vCPUs or more where add-ons or many pods are to run"
    )


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"eks.autoscaling": {"instance_groups": ["wrok"]}}, id="a group that is misspelt"),
        pytest.param({"eks.autoscaling": {"instance_groups": [5]}}, id="a group that is no name"),
        pytest.param({"eks.autoscaling": {"instance_groups": "work"}}, id="a group that is no list"),
        pytest.param({"eks.autoscaling": 5}, id="an autoscaler that is none"),
        pytest.param({"instance_groups.1.instance_count": -1}, id="a count"),
    ],
)
def test_a_mistake_of_autoscaling_blames_no_share_and_hides_no_type(changes: Changes) -> None:
    team = {**TEAM, "quota": {"ml.p5.48xlarge": 8, "ml.p5e.48xlarge": 1}}
    mistake, of_type = judge({"instance_groups.1.instance_count": 0, **changes, "teams": [team]})
    assert mistake.startswith(("eks.autoscaling", "instance_groups[work].instance_count"))
    assert of_type.startswith("teams[research].quota.ml.p5e.48xlarge: no instance group has ml.p5e.48xlarge")


def test_an_administrator_in_a_team_is_told_beside_an_arn_that_is_none() -> None:
    changes = {"eks.admin_role_arns": ["admin", ADMIN], "teams": [{**TEAM, "role_arns": ["research", ADMIN]}]}
    no_arn = "must be an IAM role's ARN such as arn:aws:iam::111122223333:role/research, and no service's own role"
    assert judge(changes) == [
        f"eks.admin_role_arns[0]: {no_arn}, got 'admin'; change it",
        (
            f"teams[research].role_arns: '{ADMIN}' is an administrator too, and EKS has one access entry for a role; "
            "remove it here: administrators may do everything that a team may"
        ),
        f"teams[research].role_arns[0]: {no_arn}, got 'research'; change it",
    ]


@pytest.mark.parametrize("mode", ["extended", "bootstrap", "customer_managed", None])
def test_under_eks_only_oncreate_is_documented(mode: str | None) -> None:
    settings = {} if mode is None else {"lifecycle": {"mode": mode}}
    refused = [f"lifecycle.mode: {mode} is documented for Slurm only; remove it, or set it to customer_managed"]
    assert judge(settings) == (refused if mode in ("extended", "bootstrap") else [])
