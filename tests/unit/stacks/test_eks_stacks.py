"""The stacks of a cluster under EKS: order, what each may reach, and what a Slurm app pays for them (nothing)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_cdk import RemovalPolicy, Stack
from aws_cdk.assertions import Annotations, Match

from cdk_hyperpod import (
    ConfigError,
    EksControlPlane,
    HyperPodNetwork,
    encryption_key,
    load_config,
)
from cdk_hyperpod.config import EksConfig
from cdk_hyperpod.config.eks import AutoscalingConfig
from cdk_hyperpod.config.teams import Team
from cdk_hyperpod.eks.manifests import karpenter_manifests
from cdk_hyperpod.kubernetes.quotas import AWS_EXAMPLE_HARD
from cdk_hyperpod.kubernetes.teams import quota_hard
from helpers.findings import found
from helpers.synthesis import (
    CONFIGS,
    ROOT,
    Json,
    Template,
    assembly_of_file,
    flat,
    new_app,
    of_file,
    of_stack,
    of_text,
    run_app,
    walk,
)
from stacks import add_stacks

EKS = CONFIGS / "eks.yaml"
EXISTING = CONFIGS / "eks_existing.yaml"
ADD_ONS = CONFIGS / "eks_add_ons.yaml"
MANIFEST = "Custom::AWSCDK-EKS-KubernetesResource"
PATCH = "Custom::AWSCDK-EKS-KubernetesPatch"
DRAINER = "hyperpod.drainer.handler.on_event"


@pytest.fixture(scope="module")
def stacks() -> dict[str, Template]:
    return {name.removeprefix("hyperpod-elastic-"): template for name, template in of_file(EKS).items()}


@pytest.fixture(scope="module")
def existing() -> dict[str, Template]:
    return {name.removeprefix("hyperpod-joining-"): template for name, template in of_file(EXISTING).items()}


def manifests(template: Template) -> list[Json]:
    """Every Kubernetes object that a template applies, references as `<name>`."""
    return [item for properties in template.properties(MANIFEST) for item in json.loads(flat(properties["Manifest"]))]


def only(template: Template, kind: str, name: str) -> str:
    """The one resource whose name begins so."""
    (found,) = (one for one in template.of(kind) if one.startswith(name))
    return found


def of_kind(template: Template, kind: str) -> dict[str, Json]:
    return {item["metadata"]["name"]: item for item in manifests(template) if item["kind"] == kind}


def before(template: Template, name: str) -> set[str]:
    """The resources of its stack that come before one, by what it says (DependsOn) and by what it refers to."""
    names = set(template.resources)
    found: set[str] = set()
    todo = [name]
    while todo:
        resource = template.resources[todo.pop()]
        said = resource.get("DependsOn", [])
        here = {*([said] if isinstance(said, str) else said)}
        for value in walk(resource.get("Properties", {})):
            if isinstance(value, dict):
                here |= {value["Ref"]} if "Ref" in value else set()
                here |= {value["Fn::GetAtt"][0]} if "Fn::GetAtt" in value else set()
        new = (here & names) - found
        found |= new
        todo += new
    return found


# -- order ------------------------------------------------------------------------------------------------------------


def test_each_stack_comes_after_the_one_that_it_needs() -> None:
    manifest = json.loads((assembly_of_file(EKS) / "manifest.json").read_text("utf-8"))
    needs = {
        name.removeprefix("hyperpod-elastic-"): {
            other.removeprefix("hyperpod-elastic-")
            for other in artifact.get("dependencies", [])
            if "assets" not in other
        }
        for name, artifact in manifest["artifacts"].items()
        if artifact["type"] == "aws:cloudformation:stack"
    }
    assert needs["foundation"] == set()
    assert needs["eks"] == {"foundation"}
    assert "eks" in needs["cluster"]
    assert "cluster" in needs["teams"]


def test_only_the_clusters_own_stack_holds_nodes(stacks: dict[str, Template]) -> None:
    assert [name for name, template in stacks.items() if template.of("AWS::SageMaker::Cluster")] == ["cluster"]
    assert not [kind for kind in stacks["cluster"].resources.values() if kind["Type"].startswith("AWS::EKS::")]
    assert not stacks["cluster"].of(MANIFEST)


def test_the_chart_is_in_the_stack_before_the_nodes_and_waits_for_kubectl(stacks: dict[str, Template]) -> None:
    chart = stacks["eks"].only_id("Custom::AWSCDK-EKS-HelmChart")
    kinds = {stacks["eks"].resources[name]["Type"] for name in before(stacks["eks"], chart)}
    assert {"AWS::EKS::Cluster", "AWS::EKS::AccessEntry"} <= kinds
    properties = stacks["eks"].only("Custom::AWSCDK-EKS-HelmChart")
    assert (properties["Release"], properties["Namespace"]) == ("dependencies", "kube-system")
    values = json.loads(properties["Values"])
    assert values["health-monitoring-agent"] == {"region": "us-west-2"}
    assert values["mpi-operator"]["mpiOperator"]["image"]["repository"].startswith("111122223333.dkr.ecr.")


def test_the_file_s_types_are_added_to_the_lists_of_the_device_plug_ins() -> None:
    """Those that AWS's chart has stay, the one list without a value changes in the asset, and the team's quota counts the GPUs."""
    templates = of_file(ADD_ONS)
    chart = templates["hyperpod-added-eks"].only("Custom::AWSCDK-EKS-HelmChart")
    values = json.loads(chart["Values"])
    efa = values["aws-efa-k8s-device-plugin"]["supportedInstanceLabels"]["values"]
    assert {"ml.p5.48xlarge", "ml.g4dn.12xlarge"} <= {*efa}
    assert "ml.g4dn.12xlarge" in json.dumps(values["nvidia-device-plugin"]["affinity"])
    template = "charts/neuron-device-plugin/templates/daemonset.yaml"
    (installed,) = assembly_of_file(ADD_ONS).rglob(template)
    assert "- ml.trn2.3xlarge\n" in installed.read_text("utf-8")
    assert "- ml.trn2.3xlarge\n" not in (CONFIGS.parent / "chart" / template).read_text("utf-8")
    (quota,) = (
        each for each in manifests(templates["hyperpod-added-teams"]) if each["metadata"]["name"] == "team-quota"
    )
    assert (
        quota["spec"]["hard"]["requests.nvidia.com/gpu"],
        quota["spec"]["hard"]["requests.vpc.amazonaws.com/efa"],
    ) == ("8", "2")
    network = next(
        each for each in templates["hyperpod-added-eks"].properties("AWS::EKS::Addon") if each["AddonName"] == "vpc-cni"
    )
    assert json.loads(network["ConfigurationValues"])["enableNetworkPolicy"] == "true"
    assert network["ResolveConflicts"] == "OVERWRITE"


def test_the_training_operator_gets_its_role_and_cert_manager_first(stacks: dict[str, Template]) -> None:
    teams = stacks["teams"]
    by_name = {resource["Properties"]["AddonName"]: name for name, resource in teams.of("AWS::EKS::Addon").items()}
    first = before(teams, by_name["amazon-sagemaker-hyperpod-training-operator"])
    associations = teams.of("AWS::EKS::PodIdentityAssociation")
    (identity,) = (name for name, item in associations.items() if item["Properties"]["Namespace"] == "aws-hyperpod")
    assert {by_name["cert-manager"], by_name["coredns"], identity} <= first
    association = associations[identity]["Properties"]
    assert association["ServiceAccount"] == "hp-training-operator-controller-manager"
    addon = teams.resources[by_name["amazon-sagemaker-hyperpod-training-operator"]]["Properties"]
    assert addon["AddonVersion"] == "v1.3.0-eksbuild.1"
    assert "PodIdentityAssociations" not in addon


def test_a_teams_objects_come_after_its_share_for_which_hyperpod_makes_the_namespace(
    stacks: dict[str, Template],
) -> None:
    teams = stacks["teams"]
    quotas = {
        resource["Properties"]["ComputeQuotaTarget"]["TeamName"]: name
        for name, resource in teams.of("AWS::SageMaker::ComputeQuota").items()
    }
    for team, quota in quotas.items():
        patch, limits, defaults, rights = (
            only(teams, kind, f"Teams{what}hyperpodns{team}")
            for what, kind in (("PodSecurity", PATCH), ("Limits", MANIFEST), ("Defaults", MANIFEST), ("Team", MANIFEST))
        )
        assert {quota, teams.only_id("AWS::SageMaker::ClusterSchedulerConfig")} <= before(teams, patch)
        assert patch in before(teams, limits) & before(teams, defaults)
        assert {limits, defaults} <= before(teams, rights)
    assert of_kind(teams, "Namespace") == {}


def test_a_namespace_of_ours_is_a_resource_of_its_own_before_all_that_is_in_it(existing: dict[str, Template]) -> None:
    """One that somebody has already fails by itself, and leaves nothing of ours in it."""
    teams = existing["teams"]
    namespace = only(teams, MANIFEST, "TeamsNamespaceneuronjobs")
    (made,) = json.loads(flat(teams.resources[namespace]["Properties"]["Manifest"]))
    assert made["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    for what in ("Limits", "Defaults", "Team"):
        assert namespace in before(teams, only(teams, MANIFEST, f"Teams{what}neuronjobs"))
    assert not teams.of(PATCH)


def test_pod_security_is_patched_on_namespaces_that_hyperpod_creates(tmp_path: Path) -> None:
    data = yaml.safe_load(EKS.read_text("utf-8"))
    data["eks"] = {"dependencies_chart": "installed"}
    data["teams"][0]["pod_security"] = "restricted"
    patches = of_text(yaml.safe_dump(data), tmp_path)["hyperpod-elastic-teams"].properties(PATCH)
    label = "pod-security.kubernetes.io/enforce"
    assert {
        patch["ResourceName"]: json.loads(patch["ApplyPatchJson"])["metadata"]["labels"][label] for patch in patches
    } == {"namespace/hyperpod-ns-research": "restricted", "namespace/hyperpod-ns-inference": "baseline"}
    # null takes the label away.
    assert {patch["RestorePatchJson"] for patch in patches} == {json.dumps({"metadata": {"labels": {label: None}}})}
    assert {patch["PatchType"] for patch in patches} == {"strategic"}


def test_teams_add_ons_and_priorities_leave_the_cluster_as_it_is(stacks: dict[str, Template], tmp_path: Path) -> None:
    """An update of the cluster would send the file's counts again, which under Karpenter are not those there are."""
    data = yaml.safe_load(EKS.read_text("utf-8"))
    data["eks"] = {
        "dependencies_chart": "installed",
        "kubernetes_version": "1.34",
        "add_ons": {"training_operator": {"version": "v1.4.0-eksbuild.1"}},
    }
    data["teams"] = data["teams"][:1]
    data["storage"]["capacity_gib"] *= 2
    changed = of_text(yaml.safe_dump(data), tmp_path)
    assert changed["hyperpod-elastic-eks"].resources != stacks["eks"].resources
    assert changed["hyperpod-elastic-teams"].resources != stacks["teams"].resources
    before, after = stacks["cluster"].resources, changed["hyperpod-elastic-cluster"].resources
    # What `plan` compares files with is said beside the cluster, and nothing depends on it.
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {"Settings"}


def test_a_quota_or_priority_that_is_given_up_is_a_resource_that_goes(tmp_path: Path) -> None:
    """`kubectl apply --prune`, by which CDK updates a resource, leaves objects of these kinds where they are.

    Only the numbers of a quota go with it: what it says of Services stays.
    """
    data = yaml.safe_load(EKS.read_text("utf-8"))
    data["eks"] = {
        "dependencies_chart": "installed",
        "add_ons": {"task_governance": {"enabled": False}},
        "priority_classes": [{"name": "urgent", "value": 1000}, {"name": "spare", "value": 10}],
    }
    data["teams"] = [{"name": "research", "quota": {"ml.p5.48xlarge": 4}}, {"name": "inference"}]
    more = of_text(yaml.safe_dump(data), tmp_path)["hyperpod-elastic-teams"].of(MANIFEST)
    data["eks"]["priority_classes"].pop()
    del data["teams"][0]["quota"]
    fewer = of_text(yaml.safe_dump(data), tmp_path)["hyperpod-elastic-teams"].of(MANIFEST)
    changed = [name for name in fewer if fewer[name]["Properties"] != more[name]["Properties"]]
    assert [name[: len("TeamsLimitsresearch")] for name in changed] == ["TeamsLimitsresearch"]
    objects = {name: json.loads(flat(resource["Properties"]["Manifest"])) for name, resource in (more | fewer).items()}
    assert [item["kind"] for item in objects[changed[0]]] == ["ResourceQuota", "ResourceQuota"]
    hard = objects[changed[0]][0]["spec"]["hard"]
    assert (hard["secrets"], "requests.cpu" in hard) == ("200", False)
    gone = [objects[name] for name in more if name not in fewer]
    assert [[item["kind"] for item in items] for items in gone] == [["PriorityClass"], ["LimitRange"]]


# -- the EKS cluster --------------------------------------------------------------------------------------------------


def test_the_control_plane_has_access_entries_encrypted_secrets_and_logs(stacks: dict[str, Template]) -> None:
    cluster = stacks["eks"].only("AWS::EKS::Cluster")
    assert cluster["AccessConfig"] == {
        "AuthenticationMode": "API",
        "BootstrapClusterCreatorAdminPermissions": False,
    }
    assert cluster["BootstrapSelfManagedAddons"] is False
    assert cluster["ComputeConfig"] == {"Enabled": False}
    assert cluster["EncryptionConfig"][0]["Resources"] == ["secrets"]
    assert len(cluster["Logging"]["ClusterLogging"]["EnabledTypes"]) == 5
    assert cluster["Version"] == "1.35"
    assert len(cluster["ResourcesVpcConfig"]["SubnetIds"]) == 2
    assert cluster["ResourcesVpcConfig"]["PublicAccessCidrs"] == ["203.0.113.0/24"]
    (log,) = (group for group in stacks["eks"].properties("AWS::Logs::LogGroup") if "/aws/eks/" in str(group))
    assert log["LogGroupName"] == "/aws/eks/elastic/cluster"
    assert all("KmsKeyId" in group for group in stacks["eks"].properties("AWS::Logs::LogGroup"))
    assert not stacks["eks"].of("AWS::EKS::Nodegroup")


def test_the_api_is_private_unless_addresses_are_named(tmp_path: Path) -> None:
    data = yaml.safe_load(EKS.read_text("utf-8"))
    data["eks"] = {"dependencies_chart": "installed"}
    cluster = of_text(yaml.safe_dump(data), tmp_path)["hyperpod-elastic-eks"].only("AWS::EKS::Cluster")
    access = cluster["ResourcesVpcConfig"]
    assert (access["EndpointPrivateAccess"], access["EndpointPublicAccess"]) == (True, False)
    assert cluster["Version"] == "1.34"


def test_warnings_of_the_eks_cluster_reach_whoever_synthesizes(tmp_path: Path) -> None:
    data = yaml.safe_load(EKS.read_text("utf-8"))
    data["eks"] = {"dependencies_chart": "installed", "public_access_cidrs": ["0.0.0.0/0"]}
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(data), "utf-8")
    app = new_app()
    add_stacks(app, load_config(path))
    stack = app.node.find_child("hyperpod-elastic-eks")
    assert isinstance(stack, Stack)
    warnings = Annotations.from_stack(stack).find_warning("/hyperpod-elastic-eks", Match.any_value())
    assert [str(warning.entry.data).partition(": ")[0] for warning in warnings] == [
        "eks.dependencies_chart",
        "eks.public_access_cidrs",
    ]


def test_add_ons_that_need_no_node_come_before_the_nodes_and_the_others_after(stacks: dict[str, Template]) -> None:
    names = {
        stack: [properties["AddonName"] for properties in stacks[stack].properties("AWS::EKS::Addon")]
        for stack in ("eks", "teams")
    }
    assert names == {
        "eks": ["vpc-cni", "kube-proxy", "eks-pod-identity-agent"],
        "teams": [
            "coredns",
            "cert-manager",
            "amazon-sagemaker-hyperpod-training-operator",
            "amazon-sagemaker-hyperpod-taskgovernance",
            "aws-fsx-csi-driver",
        ],
    }


def test_kubectl_runs_in_the_vpc_and_is_let_out_to_the_api_and_the_endpoints_only(stacks: dict[str, Template]) -> None:
    eks = stacks["eks"]
    (group,) = (name for name in eks.of("AWS::EC2::SecurityGroup") if "Kubectl" in name)
    functions = [each for each in eks.properties("AWS::Lambda::Function") if each["Handler"] != DRAINER]
    assert len(functions) == 2
    for function in functions:
        assert function["VpcConfig"]["SecurityGroupIds"] == [{"Fn::GetAtt": [group, "GroupId"]}]
    out = [rule for rule in eks.properties("AWS::EC2::SecurityGroupEgress") if group in str(rule["GroupId"])]
    assert sorted((rule["FromPort"], rule["ToPort"], rule["Description"]) for rule in out) == [
        (443, 443, "AWS services"),
        (443, 443, "Kubernetes API"),
    ]
    (own,) = eks.resources[group]["Properties"]["SecurityGroupEgress"]
    assert own["DestinationPrefixListId"] == "pl-68a54001"
    services = {
        properties["ServiceName"].removeprefix("com.amazonaws.us-west-2.")
        for properties in stacks["foundation"].properties("AWS::EC2::VPCEndpoint")
    }
    assert {"eks", "eks-auth", "lambda", "sts", "s3", "ecr.api", "ecr.dkr", "sagemaker.api"} <= services


def test_kubectl_reads_no_container_registry(stacks: dict[str, Template]) -> None:
    assert "ContainerRegistry" not in json.dumps(stacks["eks"].body)
    assert "Conditions" not in stacks["eks"].body


def test_administrators_are_access_entries(stacks: dict[str, Template]) -> None:
    admins = [
        entry
        for entry in stacks["eks"].properties("AWS::EKS::AccessEntry")
        if "cluster-access-policy/AmazonEKSClusterAdminPolicy" in flat(entry.get("AccessPolicies", ""))
    ]
    assert {flat(entry["PrincipalArn"]) for entry in admins} >= {"arn:aws:iam::111122223333:role/admin"}
    assert len(admins) == 2


# -- draining ---------------------------------------------------------------------------------------------------------


def drainer_of(template: Template) -> tuple[str, Json]:
    """The function's logical id and properties."""
    ((name, resource),) = (
        (name, each)
        for name, each in template.of("AWS::Lambda::Function").items()
        if each["Properties"]["Handler"] == DRAINER
    )
    return name, resource["Properties"]


def test_the_drainer_reaches_the_api_and_nothing_else(stacks: dict[str, Template]) -> None:
    eks = stacks["eks"]
    _, function = drainer_of(eks)
    ((_, [group, _]),) = (each for rule in function["VpcConfig"]["SecurityGroupIds"] for each in rule.items())
    assert "Drainer" in group
    (own,) = eks.resources[group]["Properties"]["SecurityGroupEgress"]
    assert own["CidrIp"] == "127.0.0.1/32"
    (out,) = (rule for rule in eks.properties("AWS::EC2::SecurityGroupEgress") if group in str(rule["GroupId"]))
    assert (out["FromPort"], out["ToPort"]) == (443, 443)
    assert "EksControlPlane" in str(out["DestinationSecurityGroupId"])
    assert not [rule for rule in eks.properties("AWS::EC2::SecurityGroupIngress") if group in str(rule["GroupId"])]
    assert len(function["VpcConfig"]["SubnetIds"]) == 2


def test_the_drainer_may_do_nothing_in_aws_but_be_in_the_vpc(stacks: dict[str, Template]) -> None:
    eks = stacks["eks"]
    name, function = drainer_of(eks)
    (policy_id,) = (each for each in eks.of("AWS::IAM::ManagedPolicy") if "Drainer" in each)
    logs, plugs, not_by_itself = eks.resources[policy_id]["Properties"]["PolicyDocument"]["Statement"]
    assert logs["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
    assert {action.partition(":")[0] for action in plugs["Action"]} == {"ec2"}
    assert (plugs["Effect"], not_by_itself["Effect"]) == ("Allow", "Deny")
    assert plugs["Action"] == not_by_itself["Action"]
    assert flat(not_by_itself["Condition"]["ArnEquals"]["lambda:SourceFunctionArn"]).endswith(
        f":function:{function['FunctionName']}"
    )
    # Lambda asks for them when it makes the function, and when it takes it away.
    assert policy_id in eks.resources[name]["DependsOn"]
    (role,) = (each for each in eks.of("AWS::IAM::Role") if "Drainer" in each)
    assert "ManagedPolicyArns" not in eks.resources[role]["Properties"]


def test_the_drainer_has_only_its_own_roles_in_kubernetes(stacks: dict[str, Template]) -> None:
    (entry,) = (
        each for each in stacks["eks"].properties("AWS::EKS::AccessEntry") if each.get("KubernetesGroups") is not None
    )
    assert entry["KubernetesGroups"] == ["cdk-hyperpod-drainer"]
    assert "AccessPolicies" not in entry
    ours = [each for each in manifests(stacks["eks"]) if each["metadata"]["name"] == "cdk-hyperpod-drainer"]
    assert sorted((each["kind"], each["metadata"].get("namespace")) for each in ours) == [
        ("ClusterRole", None),
        ("ClusterRoleBinding", None),
        ("Role", "hyperpod-backup"),
        ("Role", "kube-system"),
        ("RoleBinding", "hyperpod-backup"),
        ("RoleBinding", "kube-system"),
    ]


def test_the_backup_has_a_namespace_of_its_own_that_stays(stacks: dict[str, Template]) -> None:
    (made,) = (
        each
        for each in stacks["eks"].of("Custom::AWSCDK-EKS-KubernetesResource").values()
        if '"Namespace"' in flat(each["Properties"]["Manifest"])
    )
    (namespace,) = json.loads(flat(made["Properties"]["Manifest"]))
    assert namespace["metadata"]["name"] == "hyperpod-backup"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    # The user's CronJob is in it; and it may be there when it is made again.
    assert (made["DeletionPolicy"], made["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert made["Properties"]["Overwrite"] is True
    # Nothing of a team's is in it, but the claim that the CronJob copies to.
    inside = [each for each in manifests(stacks["teams"]) if each["metadata"].get("namespace") == "hyperpod-backup"]
    assert [(each["kind"], each["metadata"]["name"]) for each in inside] == [("PersistentVolumeClaim", "fsx")]


def test_the_drainer_knows_where_the_api_is(stacks: dict[str, Template], existing: dict[str, Template]) -> None:
    made = drainer_of(stacks["eks"])[1]["Environment"]["Variables"]
    assert [made[name]["Fn::GetAtt"][1] for name in ("KUBERNETES_ENDPOINT", "KUBERNETES_CA")] == [
        "Endpoint",
        "CertificateAuthorityData",
    ]
    assert made["EKS_CLUSTER"] == "elastic"
    assert made["BACKUP_CRON_JOB"] == "hyperpod-backup/save-node"
    found = drainer_of(existing["eks"])[1]["Environment"]["Variables"]
    assert found == {
        "KUBERNETES_ENDPOINT": "https://0123456789ABCDEF0123456789ABCDEF.gr7.us-west-2.eks.amazonaws.com",
        "KUBERNETES_CA": "LS0tLS1CRUdJTi1DRVJUSUZJQ0FURS0tLS0tCg==",
        "EKS_CLUSTER": "shared",
    }


def test_the_guard_may_call_the_drainer_and_no_other_function(stacks: dict[str, Template]) -> None:
    (reading,) = (
        properties["PolicyDocument"]["Statement"]
        for properties in stacks["cluster"].properties("AWS::IAM::ManagedPolicy")
        if properties.get("Description", "").startswith("Reading, for scaling down")
    )
    (call,) = (each for each in reading if "lambda:InvokeFunction" in each["Action"])
    name = drainer_of(stacks["eks"])[1]["FunctionName"]
    assert flat(call["Resource"]) == f"arn:<AWS::Partition>:lambda:us-west-2:<AWS::AccountId>:function:{name}"
    assert not [each for each in reading if "s3" in str(each["Action"])]
    told = json.loads(flat(stacks["cluster"].only("Custom::HyperPodScaleDown")["Drain"]))
    assert told == {
        "Function": flat(call["Resource"]),
        "TimeoutMinutes": 20,
        "OnTimeout": "fail",
        "OnSilent": "fail",
        "UnmanagedPods": "fail",
        "MustBeSaved": True,
    }


def test_without_draining_nothing_of_it_is_made(tmp_path: Path) -> None:
    shutil.copytree(EKS.parents[1] / "chart", tmp_path / "chart")
    text = EKS.read_text("utf-8").partition("scale_down:")[0].replace("../chart", "chart")
    made = of_text(text, tmp_path)
    assert "drainer" not in json.dumps([template.body for template in made.values()]).lower()


# -- the HyperPod cluster ---------------------------------------------------------------------------------------------


def test_the_cluster_joins_the_eks_cluster_by_a_literal_arn(stacks: dict[str, Template]) -> None:
    cluster = stacks["cluster"].only("AWS::SageMaker::Cluster")
    assert flat(cluster["Orchestrator"]["Eks"]["ClusterArn"]) == (
        "arn:<AWS::Partition>:eks:us-west-2:<AWS::AccountId>:cluster/elastic"
    )
    assert cluster["NodeProvisioningMode"] == "Continuous"
    assert {"Key": "SageMaker", "Value": "true"} in cluster["Tags"]
    groups = stacks["cluster"].groups()
    assert groups["p5"]["MinInstanceCount"] == 4
    assert groups["p5"]["LifeCycleConfig"]["OnCreate"] == "node.sh"
    assert groups["p5"]["KubernetesConfig"] == {
        "Labels": {"accelerator": "h100"},
        "Taints": [{"Key": "nvidia.com/gpu", "Value": "present", "Effect": "NoSchedule"}],
    }
    for group in groups.values():
        assert "SlurmConfig" not in group
        assert "FsxLustreConfig" not in str(group)


def test_nodes_may_join_pull_and_take_roles_for_pods(stacks: dict[str, Template]) -> None:
    (policy,) = (
        resource["Properties"]
        for name, resource in stacks["cluster"].of("AWS::IAM::ManagedPolicy").items()
        if name.startswith("ClusterNodePolicy")
    )
    statements = policy["PolicyDocument"]["Statement"]
    allowed = {action for statement in statements for action in statement["Action"]}
    assert {
        "ec2:AssignPrivateIpAddresses",
        "ec2:AttachNetworkInterface",
        "ecr:BatchGetImage",
        "eks-auth:AssumeRoleForPodIdentity",
    } <= allowed


# -- teams ------------------------------------------------------------------------------------------------------------


def test_teams_have_shares_and_ceilings(stacks: dict[str, Template]) -> None:
    quotas = {
        properties["ComputeQuotaTarget"]["TeamName"]: properties
        for properties in stacks["teams"].properties("AWS::SageMaker::ComputeQuota")
    }
    assert quotas["research"]["Name"] == "elastic-research"
    assert quotas["research"]["ComputeQuotaTarget"] == {"TeamName": "research", "FairShareWeight": 50}
    assert quotas["research"]["ComputeQuotaConfig"] == {
        "ComputeQuotaResources": [{"InstanceType": "ml.p5.48xlarge", "Count": 4}],
        "ResourceSharingConfig": {"Strategy": "LendAndBorrow", "BorrowLimit": 50},
    }
    hard = {
        item["metadata"]["namespace"]: item["spec"]["hard"]["requests.nvidia.com/gpu"]
        for item in manifests(stacks["teams"])
        if item["metadata"]["name"] == "team-quota"
    }
    assert hard == {"hyperpod-ns-research": "48", "hyperpod-ns-inference": "24"}


def test_a_role_in_two_teams_is_one_access_entry_with_both_groups(stacks: dict[str, Template]) -> None:
    groups = {
        properties["PrincipalArn"].rpartition("/")[2]: properties["KubernetesGroups"]
        for properties in stacks["teams"].properties("AWS::EKS::AccessEntry")
    }
    assert groups == {
        "research": ["hyperpod-ns-research-namespace-level-group"],
        "both": ["hyperpod-ns-research-namespace-level-group", "hyperpod-ns-inference-namespace-level-group"],
    }


def test_each_team_has_its_own_claim_on_the_file_system(stacks: dict[str, Template]) -> None:
    volumes = of_kind(stacks["teams"], "PersistentVolume")
    claims = [item for item in manifests(stacks["teams"]) if item["kind"] == "PersistentVolumeClaim"]
    # Two teams, and the backup.
    assert len(volumes) == len(claims) == 3
    for claim in claims:
        volume = volumes[claim["spec"]["volumeName"]]["spec"]
        assert volume["claimRef"] == {"namespace": claim["metadata"]["namespace"], "name": "fsx"}
        assert volume["persistentVolumeReclaimPolicy"] == "Retain"
        assert volume["csi"]["driver"] == "fsx.csi.aws.com"
        assert "DNSName" in volume["csi"]["volumeAttributes"]["dnsname"]
        assert "LustreMountName" in volume["csi"]["volumeAttributes"]["mountname"]
    assert len({volume["spec"]["csi"]["volumeHandle"] for volume in volumes.values()}) == 3


def test_task_governance_has_the_clusters_policy(stacks: dict[str, Template]) -> None:
    assert stacks["teams"].only("AWS::SageMaker::ClusterSchedulerConfig")["SchedulerConfig"] == {
        "FairShare": "Enabled",
        "IdleResourceSharing": "Enabled",
        "PriorityClasses": [{"Name": "inference", "Weight": 100}, {"Name": "training", "Weight": 50}],
    }
    assert of_kind(stacks["teams"], "PriorityClass")["urgent"]["preemptionPolicy"] == "Never"


# -- an existing EKS cluster, Karpenter -------------------------------------------------------------------------------


def test_an_existing_cluster_gets_an_access_entry_for_kubectl_and_nothing_that_it_has(
    existing: dict[str, Template],
) -> None:
    eks = existing["eks"]
    assert not eks.of("AWS::EKS::Cluster")
    assert not eks.of("AWS::EKS::Addon")
    entries = eks.properties("AWS::EKS::AccessEntry")
    assert [entry["ClusterName"] for entry in entries] == ["shared", "shared"]
    assert sorted(str(entry.get("KubernetesGroups")) for entry in entries) == ["None", "['cdk-hyperpod-drainer']"]
    control_plane = "sg-0123456789abcdef0"
    ingress = [rule for rule in eks.properties("AWS::EC2::SecurityGroupIngress") if rule["GroupId"] == control_plane]
    assert sorted(rule["Description"] for rule in ingress) == ["Kubernetes API"] * 3
    cluster = existing["cluster"].only("AWS::SageMaker::Cluster")
    assert flat(cluster["Orchestrator"]["Eks"]["ClusterArn"]).endswith(":cluster/shared")
    assert {flat(item["ClusterName"]) for item in existing["teams"].properties(MANIFEST)} == {"shared"}


def test_scaling_down_knows_which_counts_are_the_autoscalers(existing: dict[str, Template]) -> None:
    assert existing["cluster"].only("Custom::HyperPodScaleDown")["AutoscaledGroups"] == ["trn1"]


def test_karpenter_owns_its_groups_counts(existing: dict[str, Template]) -> None:
    cluster = existing["cluster"].only("AWS::SageMaker::Cluster")
    assert cluster["AutoScaling"] == {"Mode": "Enable", "AutoScalerType": "Karpenter"}
    role = existing["cluster"].resources[cluster["ClusterRole"]["Fn::GetAtt"][0]]["Properties"]
    principal = role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]
    assert principal == {"Service": "hyperpod.sagemaker.amazonaws.com"}
    assert existing["cluster"].groups()["trn1"]["InstanceCount"] == 0
    assert of_kind(existing["teams"], "HyperpodNodeClass")["hyperpod"]["spec"] == {"instanceGroups": ["trn1"]}
    pool = of_kind(existing["teams"], "NodePool")["hyperpod"]["spec"]
    assert pool["limits"] == {"aws.amazon.com/neuron": "64"}
    assert pool["disruption"]["consolidationPolicy"] == "WhenEmpty"
    assert pool["template"]["spec"]["nodeClassRef"]["name"] == "hyperpod"


def test_karpenter_makes_whole_nodes_for_what_the_teams_may_hold() -> None:
    """A quota by itself bounds no nodes: each of a hundred small pods may want one of its own."""
    config = AutoscalingConfig(instance_groups=("p5",))
    teams = [
        Team(name="half", quota={"ml.p5.48xlarge": 1}, borrow_limit=50, hard=AWS_EXAMPLE_HARD),
        Team(name="more", quota={"ml.m5.4xlarge": 2}, absolute_borrow_limits={"ml.trn1.32xlarge": 1}),
    ]
    pool = karpenter_manifests(config, teams)[1]["spec"]
    assert pool["limits"] == {
        "cpu": str(1536 + 2 * 16 + 128),  # the first team's `hard`; 192 vCPUs a node otherwise
        "memory": f"{5120 + 2 * 64 + 512}Gi",
        "nvidia.com/gpu": "16",
        "vpc.amazonaws.com/efa": str(2 * 32 + 8),
        "aws.amazon.com/neuron": "16",
        "aws.amazon.com/neuroncore": "32",
        "aws.amazon.com/neurondevice": "16",
    }
    given = AutoscalingConfig(instance_groups=("p5",), limits={"cpu": "8"})
    assert karpenter_manifests(given, teams)[1]["spec"]["limits"] == {"cpu": "8"}
    assert "limits" not in karpenter_manifests(config)[1]["spec"]


def test_the_limits_let_every_node_of_a_quota_be_made() -> None:
    """The quota counts what pods can have; the nodes themselves have more."""
    team = Team(name="t", quota={"ml.p5.48xlarge": 8})
    limits = karpenter_manifests(AutoscalingConfig(instance_groups=("p5",)), [team])[1]["spec"]["limits"]
    assert quota_hard(team)["requests.cpu"] == "1432"
    assert (limits["cpu"], limits["memory"]) == (str(8 * 192), f"{8 * 2048}Gi")


def test_without_task_governance_namespaces_are_ours(existing: dict[str, Template]) -> None:
    assert set(of_kind(existing["teams"], "Namespace")) == {"neuron-jobs"}
    assert not existing["teams"].of("AWS::SageMaker::ComputeQuota")
    assert not existing["teams"].of("AWS::SageMaker::ClusterSchedulerConfig")


def test_observability_writes_to_a_workspace_of_its_own(existing: dict[str, Template]) -> None:
    addon = next(
        properties
        for properties in existing["teams"].properties("AWS::EKS::Addon")
        if properties["AddonName"] == "amazon-sagemaker-hyperpod-observability"
    )
    workspace = existing["teams"].only_id("AWS::APS::Workspace")
    assert workspace in flat(addon["ConfigurationValues"])
    assert "KmsKeyArn" in existing["teams"].only("AWS::APS::Workspace")


# -- the library by itself --------------------------------------------------------------------------------------------


def test_the_construct_refuses_what_the_file_refuses() -> None:
    def build(stack: Stack) -> None:
        EksControlPlane(
            stack,
            "Eks",
            cluster_name="one",
            eks_config=EksConfig(dependencies_chart="no-such-chart", kubernetes_version="latest"),
            network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2c"]),
            encryption_key=encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY),
        )

    with pytest.raises(ConfigError) as error:
        of_stack(build)
    assert {*found(error.value.findings)} >= {
        ("value-malformed", "eks.kubernetes_version"),
        ("zones-too-few", "network.availability_zones"),
        ("chart-not-found", "eks.dependencies_chart"),
        ("eks-endpoints-missing", "network"),
    }


# -- determinism and laziness -----------------------------------------------------------------------------------------


@pytest.mark.ci
def test_where_and_when_it_runs_changes_no_byte(tmp_path: Path) -> None:
    context = json.dumps({"config": str(EKS), "aws:cdk:disable-asset-staging": True})
    elsewhere = run_app(
        tmp_path / "cdk.out",
        tmp_path,
        CDK_CONTEXT_JSON=context,
        AWS_REGION="eu-west-1",
        CDK_DEFAULT_ACCOUNT="999999999999",
        LC_ALL="C",
        PYTHONHASHSEED="4711",
        TZ="Pacific/Kiritimati",
    )
    made = {path.name: path.read_text("utf-8") for path in elsewhere.glob("*.template.json")}
    here = {path.name: path.read_text("utf-8") for path in assembly_of_file(EKS).glob("*.template.json")}
    assert len(made) == 4
    assert made == here


def test_a_slurm_app_loads_nothing_of_eks(tmp_path: Path) -> None:
    program = """
import json, runpy, sys
sys.argv = ["app.py"]
try:
    runpy.run_path("app.py", run_name="__main__")
except SystemExit as end:
    assert not end.code
print(json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "CDK_OUTDIR": str(tmp_path), "CDK_VALIDATION": "false"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    loaded: list[Any] = json.loads(done.stdout.splitlines()[-1])
    assert "cdk_hyperpod.cluster.cluster" in loaded
    for name in (
        "aws_cdk.aws_eks_v2",
        "aws_cdk.aws_aps",
        "aws_cdk.lambda_layer",
        "cdk_hyperpod.eks",
        "cdk_hyperpod.kubernetes.helm_chart",
    ):
        assert not [module for module in loaded if module.startswith(name)], name


# -- the control plane's second zone --------------------------------------------------------------------------------------


ONE_ZONE: Json = {
    "name": "elastic",
    "region": "us-west-2",
    "orchestrator": "eks",
    "network": {"availability_zones": ["us-west-2c"]},
    "eks": {"dependencies_chart": "installed"},
    "teams": [
        {"name": "research", "quota": {"ml.p5.48xlarge": 8}, "role_arns": ["arn:aws:iam::111122223333:role/research"]},
        {"name": "neuron", "quota": {"ml.trn1.32xlarge": 4}},
    ],
    "instance_groups": [
        {"name": "system", "instance_type": "ml.m5.4xlarge", "instance_count": 2, "min_instance_count": 2},
        {"name": "p5", "instance_type": "ml.p5.48xlarge", "instance_count": 8, "min_instance_count": 4},
        {"name": "trn1", "instance_type": "ml.trn1.32xlarge", "instance_count": 4, "min_instance_count": 4},
    ],
}


def network_and_control_plane(config: Json, folder: Path) -> tuple[Json, list[str]]:
    """The subnets by their zones, and those that the control plane gets, as the foundation's outputs name them."""
    folder.mkdir()
    stacks = of_text(yaml.safe_dump(config), folder)
    subnets = stacks["hyperpod-elastic-foundation"].of("AWS::EC2::Subnet")
    cluster = stacks["hyperpod-elastic-eks"].only("AWS::EKS::Cluster")
    chosen = [flat(item) for item in cluster["ResourcesVpcConfig"]["SubnetIds"]]
    by_zone = {item["Properties"]["AvailabilityZone"]: (name, item) for name, item in subnets.items()}
    return by_zone, [zone for zone, (name, _) in by_zone.items() if any(name in item for item in chosen)]


def test_one_zone_is_enough_and_nodes_stay_in_it(tmp_path: Path) -> None:
    subnets, chosen = network_and_control_plane(ONE_ZONE, tmp_path / "one")
    assert set(chosen) == set(subnets) == {"us-west-2c", "us-west-2a"}
    named = {**ONE_ZONE, "network": {"availability_zones": ["us-west-2c", "us-west-2a"]}}
    # Whoever writes down what the warning names changes nothing.
    assert network_and_control_plane(named, tmp_path / "named") == (subnets, chosen)
    (tmp_path / "again").mkdir()
    cluster = of_text(yaml.safe_dump(ONE_ZONE), tmp_path / "again")["hyperpod-elastic-cluster"]
    nodes = flat(cluster.only("AWS::SageMaker::Cluster")["VpcConfig"])
    assert subnets["us-west-2c"][0] in nodes
    assert subnets["us-west-2a"][0] not in nodes


@pytest.mark.parametrize("zone", ["us-west-2a", "us-west-2b"])
def test_groups_in_other_zones_do_not_move_the_control_plane(tmp_path: Path, zone: str) -> None:
    before, chosen = network_and_control_plane(ONE_ZONE, tmp_path / "before")
    far = {"name": "far", "instance_type": "ml.m5.4xlarge", "instance_count": 1, "availability_zone": zone}
    config = {**ONE_ZONE, "instance_groups": [*ONE_ZONE["instance_groups"], far]}
    after, still = network_and_control_plane(config, tmp_path / "after")
    assert set(still) == set(chosen)
    assert {name: after[name] for name in before} == before


def test_a_group_in_a_third_zone_does_not_move_the_control_plane(tmp_path: Path) -> None:
    """Doing what the warning says, name both zones, moves nothing of it, nor does naming the third."""
    far = {"name": "far", "instance_type": "ml.m5.4xlarge", "instance_count": 1, "availability_zone": "us-west-2b"}
    config = {**ONE_ZONE, "instance_groups": [*ONE_ZONE["instance_groups"], far]}
    both = ["us-west-2c", "us-west-2a"]
    chosen = []
    for number, zones in enumerate((both[:1], both, [*both, "us-west-2b"])):
        file = {**config, "network": {"availability_zones": zones}}
        chosen.append(network_and_control_plane(file, tmp_path / str(number))[1])
    assert [set(zones) for zones in chosen] == [set(both)] * 3


def test_a_library_app_names_the_second_zone() -> None:
    stack = Stack(new_app(), "Own", env={"region": "us-west-2"})
    key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
    endpoints = ("eks", "eks-auth", "lambda")
    with pytest.raises(ConfigError, match="EKS needs subnets in two zones"):
        one = HyperPodNetwork(stack, "One", availability_zones=["us-west-2c"], more_endpoints=endpoints)
        EksControlPlane(
            stack,
            "Refused",
            cluster_name="own",
            eks_config=EksConfig(dependencies_chart="installed"),
            network=one,
            encryption_key=key,
        )
    two = HyperPodNetwork(
        stack,
        "Two",
        availability_zones=["us-west-2c"],
        more_endpoints=endpoints,
        control_plane_zone="us-west-2b",
    )
    EksControlPlane(
        stack,
        "Made",
        cluster_name="own",
        eks_config=EksConfig(dependencies_chart="installed"),
        network=two,
        encryption_key=key,
    )
    assert [subnet.availability_zone for subnet in two.subnets] == ["us-west-2c"]


def test_pods_of_a_team_get_its_role(tmp_path: Path) -> None:
    role = "arn:aws:iam::111122223333:role/pods"
    config = {**ONE_ZONE, "teams": [{**ONE_ZONE["teams"][0], "pod_role_arn": role}]}
    teams = of_text(yaml.safe_dump(config), tmp_path)["hyperpod-elastic-teams"]
    (association,) = [
        item["Properties"]
        for item in teams.of("AWS::EKS::PodIdentityAssociation").values()
        if item["Properties"]["ServiceAccount"] == "team-pods"
    ]
    assert (association["Namespace"], association["RoleArn"]) == ("hyperpod-ns-research", role)
    accounts = [
        item
        for resource in teams.of(MANIFEST).values()
        for item in json.loads(flat(resource["Properties"]["Manifest"]))
        if item["kind"] == "ServiceAccount"
    ]
    assert [item["metadata"]["name"] for item in accounts] == ["team-pods"]
