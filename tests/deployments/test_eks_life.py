"""The life of a cluster under EKS with the real CDK CLI, kubectl and Helm, each step on the one before.

CDK's own handler brings the objects to a Kubernetes API on this machine: a real API server where one is built, otherwise
one that records them. Who asks it is known by an IAM role and the cluster's access entries, as on EKS.

CloudFormation works with the policies of docs/bootstrap alone, and every role has the boundary (docs/deploy-permissions.md).
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod_local.commands import run
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.alerts import Subscriber, unscheduled, wait_for
from helpers.deployments.callers import Caller, add_role, caller
from helpers.deployments.configs import under_eks
from helpers.deployments.recipe import BOUNDARY, bootstrap, context
from helpers.deployments.steps import Step, settle, wait_until
from helpers.local_aws.rehearsal import Rehearsal, resized, taking

Json = Any

NAME, QUALIFIER = "eks-life", "eksbounded"
RESEARCH, VISION, AUDIO = (f"hyperpod-ns-{team}" for team in ("research", "vision", "audio"))
GPUS = "requests.nvidia.com/gpu"
QUOTAS = {"team-quota", "no-other-priorities"}
POD_SECURITY = "pod-security.kubernetes.io/enforce"


def test_an_eks_cluster_is_deployed_changed_and_deleted_without_a_trace(
    engine: LocalAws, policies: dict[str, str], tmp_path: Path
) -> None:
    bootstrap(engine, QUALIFIER, [arn for name, arn in policies.items() if name != BOUNDARY])
    for role in ("admin", "research", "vision", "audio", "stranger", "pods"):
        add_role(engine, f"{NAME}-{role}")
    life = Rehearsal(
        engine, tmp_path, with_every_add_on({**under_eks(NAME, tmp_path), "monitoring": {}}), context(QUALIFIER)
    )
    before = inventory(engine)
    first_deployment(life)
    nothing_changed(life)
    faults_and_images_reach_a_subscriber(life)
    access_entries_decide_who_gets_in(life)
    recorded = is_recorded(as_role(life, "research"))
    a_team_stays_within_its_namespace_and_ceiling(life, recorded=recorded)
    config = teams_change(life)
    config = nodes_go_by_name_and_by_count(life, config)
    what_the_api_refuses_is_rolled_back(life, config)
    if not recorded:
        config = a_node_goes_when_a_budget_has_let_its_pod_go(life, config)
    destroy_leaves_nothing(life, config)
    assert inventory(engine) == before
    if recorded:
        message = "no API server is built here, so no team's ceiling was tried: make kubernetes-apiserver"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


def with_every_add_on(config: Json) -> Json:
    """The add-ons that are off by default, too, and one with settings of its own."""
    add_ons = {
        "coredns": {"configuration": {"replicaCount": 3}},
        "observability": {"enabled": True},
        "fsx_csi_driver": {"storage_class": True},
        "metrics_server": {"enabled": True},
        "s3_csi_driver": {"enabled": True, "buckets": ["team-data"]},
        "ebs_csi_driver": {"enabled": True},
    }
    return {**config, "eks": {**config["eks"], "add_ons": add_ons}}


def first_deployment(life: Rehearsal) -> None:
    made = life.deploy()
    assert made.ok, made.reason
    stacks = (life.foundation, life.eks, life.cluster, life.teams)
    assert [life.status(stack) for stack in stacks] == ["CREATE_COMPLETE"] * 4
    iam = life.aws.client("iam")
    roles = [role["RoleName"] for page in iam.get_paginator("list_roles").paginate() for role in page["Roles"]]
    ours = [iam.get_role(RoleName=role)["Role"] for role in roles if role.startswith(f"hyperpod-{NAME}-")]
    boundaries = {role.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn", "") for role in ours}
    assert len(ours) > 10 and {arn.rpartition("/")[2] for arn in boundaries} == {BOUNDARY}
    assert life.groups() == {"system": (2, 2, 2), "p5": (5, 1, 5), "auto": (0, 0, 0)}
    admin = as_role(life, "admin")
    # Helm's release, and what is in the chart.
    releases = names(admin, "/api/v1/namespaces/kube-system/secrets?labelSelector=owner=helm")
    assert releases == ["sh.helm.release.v1.dependencies.v1"]
    charted = names(admin, "/apis/apps/v1/namespaces/kube-system/daemonsets")
    assert {"aws-efa-k8s-device-plugin", "health-monitoring-agent", "nvidia-device-plugin"} <= set(charted)
    # What kubectl made of the manifests.
    assert {"urgent", "spare"} <= set(names(admin, "/apis/scheduling.k8s.io/v1/priorityclasses"))
    assert names(admin, "/apis/karpenter.sh/v1/nodepools") == ["hyperpod"]
    assert names(admin, "/apis/karpenter.sagemaker.amazonaws.com/v1/hyperpodnodeclasses") == ["hyperpod"]
    assert gpus(admin, RESEARCH) == "16"
    assert gpus(admin, VISION) == "8"
    for namespace in (RESEARCH, VISION):
        assert names(admin, f"/api/v1/namespaces/{namespace}/limitranges") == ["team-defaults"]
        assert names(admin, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims") == ["fsx"]
        assert set(names(admin, f"/api/v1/namespaces/{namespace}/resourcequotas")) == QUOTAS
        assert pod_security(admin, namespace) == "baseline"
    assert {"metrics-server", "aws-mountpoint-s3-csi-driver", "aws-ebs-csi-driver"} <= set(add_ons(life))
    assert json.loads(add_ons(life)["coredns"]) == {"replicaCount": 3}
    assert "prometheusEndpoint" in add_ons(life)["amazon-sagemaker-hyperpod-observability"]
    assert pods_with_roles(life) >= {"s3-csi-driver-sa", "ebs-csi-controller-sa", "fsx-csi-controller-sa"}
    assert names(admin, "/apis/storage.k8s.io/v1/storageclasses") == ["fsx-lustre"]
    # Whole nodes for what the teams may hold: three of P5.
    limits = admin.ask("GET", "/apis/karpenter.sh/v1/nodepools/hyperpod")[1]["spec"]["limits"]
    assert (limits["cpu"], limits["nvidia.com/gpu"]) == ("576", "24")


def nothing_changed(life: Rehearsal) -> None:
    step = Step(life)
    again = life.deploy()
    assert again.ok, again.reason
    assert again.output.count("(no changes)") == 4
    assert step.calls() == {}


def faults_and_images_reach_a_subscriber(life: Rehearsal) -> None:
    """A fault of a node is a message: under EKS the agent's record in the log group is not read. Its replacement is part of it, unless
    the machine is so busy that the function starts after it. An image rings once it needs a security update, and not with every release."""
    settle(life)
    subscriber = Subscriber.of(life.aws, f"{NAME}-heard")
    (topic,) = outputs_of(life, "AlertsTopicArn")
    life.aws.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=subscriber.arn)
    node = list(life.nodes("p5"))[-1]
    # On AWS it outlasts the window and the start of the function, too.
    life.aws.change_hyperpod(timings={"repair": 8.0})
    with unscheduled(life):
        life.aws.change_hyperpod(node_faults={node: {"reason": "NvidiaErrorTerminate", "message": "Xid 79"}})
        life.wait_for(lambda: node not in life.nodes())
        time.sleep(2)
    sent = subscriber.messages()[0]
    settle(life)
    assert sent["Subject"] == f"[{NAME}] 1 node is unhealthy", "its event names no group"
    assert node in sent["Message"] and "has detected fault type NvidiaErrorTerminate" in sent["Message"]
    life.aws.change_hyperpod(image={"version": "90.0.0"})
    runs = schedule_runs(life)
    wait_for(lambda: schedule_runs(life) > runs + 2)
    assert subscriber.alarms() == []
    life.aws.change_hyperpod(image={"version": "90.0.1", "older": "SecurityUpdateRequired"})
    (rung,) = wait_for(lambda: subscriber.alarms())
    assert "MonitoringImageOutdated" in rung


def schedule_runs(life: Rehearsal) -> int:
    """How often a function has described the cluster."""
    return len([call for call in life.aws.journal(operation="DescribeCluster") if "MonitoringRole" in call.who])


def outputs_of(life: Rehearsal, name: str) -> list[str]:
    (stack,) = life.aws.client("cloudformation").describe_stacks(StackName=life.cluster)["Stacks"]
    return [each["OutputValue"] for each in stack["Outputs"] if each["OutputKey"].endswith(name)]


def access_entries_decide_who_gets_in(life: Rehearsal) -> None:
    stranger = as_role(life, "stranger")
    assert stranger.ask("GET", f"/api/v1/namespaces/{RESEARCH}/pods")[0] == 401
    # A signature covers the cluster's name: what is signed for another cluster opens nothing here.
    elsewhere = caller(life.aws, NAME, f"{NAME}-research", signed_for="another")
    assert elsewhere.ask("GET", f"/api/v1/namespaces/{RESEARCH}/pods")[0] == 401
    research = as_role(life, "research")
    assert research.ask("GET", f"/api/v1/namespaces/{RESEARCH}/pods")[0] == 200


def a_team_stays_within_its_namespace_and_ceiling(life: Rehearsal, *, recorded: bool) -> None:
    research = as_role(life, "research")
    refused, answer = research.ask("POST", f"/api/v1/namespaces/{VISION}/pods", pod("foreign", 1))
    assert (refused, answer["reason"]) == (403, "Forbidden")
    assert f'in the namespace "{VISION}"' in answer["message"]
    assert research.ask("DELETE", f"/api/v1/namespaces/{RESEARCH}/resourcequotas/team-quota")[0] == 403
    unlabelled = {"metadata": {"labels": {POD_SECURITY: "privileged"}}}
    assert research.ask("PATCH", f"/api/v1/namespaces/{RESEARCH}", unlabelled)[0] == 403
    assert research.ask("GET", f"/api/v1/namespaces/{RESEARCH}")[0] == 200
    assert RESEARCH in names(research, "/api/v1/namespaces")
    workload = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{RESEARCH}/workloads/job"
    assert research.ask("PATCH", workload, {"spec": {"priority": 1000}})[0] == 403
    assert "team-pods" in names(research, f"/api/v1/namespaces/{RESEARCH}/serviceaccounts")
    (pods,) = life.aws.client("eks").list_pod_identity_associations(clusterName=NAME, namespace=RESEARCH)[
        "associations"
    ]
    assert pods["serviceAccount"] == "team-pods"
    if recorded:
        return  # The test itself says so, once the rest is done.
    wait_until(lambda: counts(research))
    made, answer = research.ask("POST", f"/api/v1/namespaces/{RESEARCH}/pods", pod("within", 16))
    assert made == 201, answer
    refused, answer = research.ask("POST", f"/api/v1/namespaces/{RESEARCH}/pods", pod("beyond", 1))
    assert (refused, answer["reason"]) == (403, "Forbidden")
    assert f"exceeded quota: team-quota, requested: {GPUS}=1, used: {GPUS}=16, limited: {GPUS}=16" in answer["message"]
    system = pod("system", 0)
    system["spec"]["priorityClassName"] = "system-node-critical"
    refused, answer = research.ask("POST", f"/api/v1/namespaces/{RESEARCH}/pods", system)
    assert (refused, answer["reason"]) == (403, "Forbidden")
    assert "exceeded quota: no-other-priorities" in answer["message"]
    urgent = pod("urgent", 0)
    urgent["spec"]["priorityClassName"] = "urgent"
    assert research.ask("POST", f"/api/v1/namespaces/{RESEARCH}/pods", urgent)[0] == 403
    hungry = pod("hungry", 0)
    hungry["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] = "10Ti"
    refused, answer = research.ask("POST", f"/api/v1/namespaces/{RESEARCH}/pods", hungry)
    assert (refused, "requests.ephemeral-storage=10Ti" in answer["message"]) == (403, True)


def teams_change(life: Rehearsal) -> Json:
    """A smaller share and other pods, a new team that borrows, one that is gone, and a priority that nobody wants; no node
    is touched. Of the add-ons one gets other settings, one another bucket, and one is turned off."""
    step, config = Step(life), deepcopy(life.config)
    research, vision = config["teams"]
    research |= {"quota": {"ml.p5.48xlarge": {"accelerators": 8}}, "pod_security": "privileged", "see_nodes": True}
    del research["pod_role_arn"]
    audio = {**vision, "name": "audio", "role_arns": [vision["role_arns"][0].replace("vision", "audio")]}
    # Its policy is not sent to a real API server, which is too old here (docs/local-aws-limits.md).
    audio |= {"absolute_borrow_limits": {"ml.p5.48xlarge": 1}, "work": ["training"]}
    config["teams"] = [research, audio]
    config["eks"]["priority_classes"].pop()
    config["eks"]["add_ons"] |= {
        "coredns": {"configuration": {"replicaCount": 4}, "resolve_conflicts": "overwrite"},
        "metrics_server": {},
        "s3_csi_driver": {"enabled": True, "buckets": ["team-data", "team-models"]},
    }
    before = as_role(life, "vision")
    changed = life.deploy(config)
    assert changed.ok, changed.reason
    # The cluster's stack notes what the file says, and changes nothing of the cluster.
    assert changed.output.count("(no changes)") == 2, changed.output
    admin = as_role(life, "admin")
    assert (gpus(admin, RESEARCH), gpus(admin, AUDIO)) == ("8", "16")
    assert as_role(life, "research").ask("GET", "/api/v1/nodes")[0] == 200
    assert as_role(life, "audio").ask("GET", f"/apis/apps/v1/namespaces/{AUDIO}/statefulsets")[0] == 200
    assert (pod_security(admin, RESEARCH), pod_security(admin, AUDIO)) == ("privileged", "baseline")
    assert "team-pods" not in names(admin, f"/api/v1/namespaces/{RESEARCH}/serviceaccounts")
    # HyperPod made the namespace and leaves it; everything of ours in and on it is gone, and so is the team's access.
    assert pod_security(admin, VISION) is None
    for what in (
        "api/v1/{}/resourcequotas",
        "api/v1/{}/limitranges",
        "apis/rbac.authorization.k8s.io/v1/{}/rolebindings",
    ):
        assert names(admin, "/" + what.format(f"namespaces/{VISION}")) == []
    assert not [name for name in names(admin, "/api/v1/persistentvolumes") if VISION in name]
    assert {"urgent", "spare"} & set(names(admin, "/apis/scheduling.k8s.io/v1/priorityclasses")) == {"urgent"}
    assert before.ask("GET", f"/api/v1/namespaces/{VISION}/pods")[0] in (401, 403)
    assert as_role(life, "vision").ask("GET", f"/api/v1/namespaces/{VISION}/pods")[0] == 401
    assert as_role(life, "audio").ask("GET", f"/api/v1/namespaces/{AUDIO}/pods")[0] == 200
    assert (json.loads(add_ons(life)["coredns"]), "metrics-server" in add_ons(life)) == ({"replicaCount": 4}, False)
    assert step.ended() == {}
    assert "UpdateCluster" not in step.calls()
    return config


def nodes_go_by_name_and_by_count(life: Rehearsal, config: Json) -> Json:
    settle(life)
    named = list(life.nodes("p5"))[1]
    step = Step(life)
    made = life.deploy(taking(resized(config, "p5", 4), nodes=[named], **config["scale_down"]), only=life.cluster)
    assert made.ok, made.reason
    assert step.ended() == {named: "named"}
    assert step.callers("BatchDeleteClusterNodes") == ["ScaleDown"]
    settle(life)
    step = Step(life)
    changed = life.change(resized(config, "p5", 3))
    assert changed.status == "UPDATE_COMPLETE", changed.reasons
    assert len(step.ended()) == 1
    assert step.callers("BatchDeleteClusterNodes") == ["ScaleDown"]
    assert life.groups() == {"system": (2, 2, 2), "p5": (3, 1, 3), "auto": (0, 0, 0)}
    assert life.ended(at_random=True) == []
    return life.config


def a_node_goes_when_a_budget_has_let_its_pod_go(life: Rehearsal, config: Json) -> Json:
    """The guard asks the drainer, a function of its own with few rights, which cordons the node and evicts its pods by the
    Kubernetes API. There are no kubelets, so pods without a grace period are gone at once."""
    settle(life)
    admin, work = as_role(life, "admin"), "/api/v1/namespaces/default/pods"
    budget = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets"
    wait_until(lambda: admin.ask("GET", "/api/v1/namespaces/default/serviceaccounts/default")[0] == 200)
    nodes = {f"work-{number}": name for number, name in enumerate(life.nodes("p5"))}
    for name, node in nodes.items():
        manifest = pod(name, 0)
        manifest["metadata"]["labels"] = {"app": "work"}
        manifest["spec"] |= {"nodeName": f"hyperpod-{node}", "terminationGracePeriodSeconds": 0}
        made, answer = admin.ask("POST", work, manifest)
        assert made == 201, answer
        runs = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        assert admin.ask("PATCH", f"{work}/{name}/status", {"status": runs})[0] == 200
    spec = {"minAvailable": 3, "selector": {"matchLabels": {"app": "work"}}}
    assert admin.ask("POST", budget, {"metadata": {"name": "work"}, "spec": spec})[0] == 201
    wait_until(lambda: admin.ask("GET", f"{budget}/work")[1].get("status", {}).get("currentHealthy") == 3)

    def held() -> list[Json]:
        return [each for each in admin.ask("GET", "/api/v1/nodes")[1]["items"] if each["spec"].get("unschedulable")]

    step = Step(life)
    with ThreadPoolExecutor(1) as thread:
        # A function's clock is a hundred times faster, so that half an hour is over in eighteen seconds.
        # No controller owns the pods, so by default the deployment would fail at its first look.
        drain = {"timeout_minutes": 30, "unmanaged_pods": "evict"}
        change = {**resized(config, "p5", 2), "scale_down": {"drain": drain}}
        changing = thread.submit(life.deploy, change, only=life.cluster)
        wait_until(lambda: bool(held()) or changing.done(), seconds=120)  # the CLI synthesizes first
        (node,) = held()
        assert "cdk-hyperpod.dev/drain" in node["metadata"]["annotations"]
        polls = step.polls()
        wait_until(lambda: step.polls() > polls + 2 or changing.done())
        assert set(names(admin, work)) == nodes.keys()
        assert "BatchDeleteClusterNodes" not in step.calls()
        assert admin.ask("PATCH", f"{budget}/work", {"spec": {"minAvailable": 2}})[0] == 200
        ended = changing.result()
    assert ended.ok, ended.reason
    (gone,) = nodes.keys() - set(names(admin, work))
    assert node["metadata"]["name"] == f"hyperpod-{nodes[gone]}"
    assert step.ended().keys() == {nodes[gone]}
    assert step.callers("BatchDeleteClusterNodes") == ["ScaleDown"]
    wait_until(lambda: node["metadata"]["name"] not in names(admin, "/api/v1/nodes"))
    assert held() == []
    return life.config


def what_the_api_refuses_is_rolled_back(life: Rehearsal, config: Json) -> None:
    """A PriorityClass keeps its value for ever. The teams' stack goes back alone: what it changed before is undone."""
    wrong = deepcopy(config)
    wrong["eks"]["priority_classes"][0]["value"] = 2000
    wrong["teams"][1]["quota"] = {"ml.p5.48xlarge": 2}
    step = Step(life)
    failed = life.deploy(wrong)
    assert not failed.ok
    assert "Forbidden" in failed.reason or "Invalid" in failed.reason, failed.reason
    assert life.status(life.teams) == "UPDATE_ROLLBACK_COMPLETE"
    admin = as_role(life, "admin")
    assert admin.ask("GET", "/apis/scheduling.k8s.io/v1/priorityclasses/urgent")[1]["value"] == 1000
    assert gpus(admin, AUDIO) == "16"
    assert step.ended() == {}


def destroy_leaves_nothing(life: Rehearsal, config: Json) -> None:
    state = life.aws.place.folder / "kubernetes" / NAME
    assert state.exists()
    run.destroy_assembly(life.aws.place, life.synth(config))
    wait_until(lambda: not state.exists())


# -- looking -----------------------------------------------------------------------------------------------------------


def inventory(aws: LocalAws) -> Json:
    """What is there of what a deployment makes, cluster by cluster and role by role."""
    ec2, sagemaker = aws.client("ec2"), aws.client("sagemaker")
    return {
        "stacks": {item["StackName"] for item in aws.client("cloudformation").describe_stacks()["Stacks"]},
        "EKS clusters": set(aws.client("eks").list_clusters()["clusters"]),
        "HyperPod clusters": {item["ClusterName"] for item in sagemaker.list_clusters()["ClusterSummaries"]},
        "quotas": {item["Name"] for item in sagemaker.list_compute_quotas()["ComputeQuotaSummaries"]},
        "file systems": {item["FileSystemId"] for item in aws.client("fsx").describe_file_systems()["FileSystems"]},
        "VPCs": {item["VpcId"] for item in ec2.describe_vpcs()["Vpcs"]},
        "interfaces": {item["NetworkInterfaceId"] for item in ec2.describe_network_interfaces()["NetworkInterfaces"]},
        "functions": {item["FunctionName"] for item in aws.client("lambda").list_functions()["Functions"]},
        "roles": {item["RoleName"] for item in aws.client("iam").list_roles()["Roles"]},
    }


def add_ons(life: Rehearsal) -> dict[str, str]:
    """The settings of each add-on of the EKS cluster, as JSON."""
    eks = life.aws.client("eks")
    found = [
        eks.describe_addon(clusterName=NAME, addonName=name) for name in eks.list_addons(clusterName=NAME)["addons"]
    ]
    return {each["addon"]["addonName"]: each["addon"].get("configurationValues", "{}") for each in found}


def pods_with_roles(life: Rehearsal) -> set[str]:
    found = life.aws.client("eks").list_pod_identity_associations(clusterName=NAME, namespace="kube-system")
    return {each["serviceAccount"] for each in found["associations"]}


def as_role(life: Rehearsal, role: str) -> Caller:
    return caller(life.aws, NAME, f"{NAME}-{role}")


def names(who: Caller, path: str) -> list[str]:
    status, answer = who.ask("GET", path)
    assert status == 200, answer
    return [item["metadata"]["name"] for item in answer["items"]]


def pod_security(who: Caller, namespace: str) -> str | None:
    status, answer = who.ask("GET", f"/api/v1/namespaces/{namespace}")
    assert status == 200, answer
    label: str | None = answer["metadata"]["labels"].get(POD_SECURITY)
    return label


def gpus(who: Caller, namespace: str) -> str:
    status, answer = who.ask("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/team-quota")
    assert status == 200, answer
    return str(answer["spec"]["hard"][GPUS])


def counts(who: Caller) -> bool:
    """A quota refuses nothing before its first status, and a namespace takes no pod before its service account."""
    quotas = who.ask("GET", f"/api/v1/namespaces/{RESEARCH}/resourcequotas")[1]["items"]
    account = who.ask("GET", f"/api/v1/namespaces/{RESEARCH}/serviceaccounts/default")[0]
    return all(quota.get("status", {}).get("hard") for quota in quotas) and account == 200


def is_recorded(who: Caller) -> bool:
    return "recording" in who.ask("GET", "/version")[1]["gitVersion"]


def pod(name: str, count: int) -> Json:
    amounts = {"nvidia.com/gpu": str(count), "cpu": "1", "memory": "1Gi"}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"containers": [container], "schedulerName": "nobody"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
