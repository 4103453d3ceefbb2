"""Rules of instance groups: each refuses one thing, in full words, and is silent about what lies next to it."""

from __future__ import annotations

import pytest

from cdk_hyperpod.facts.instance_types import catalogue
from helpers.judging import REMOVED, Changes, judge

PLAN = "arn:aws:sagemaker:us-west-2:111122223333:training-plan/large"
KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b"
CPU = {"name": "cpu", "instance_type": "ml.c5.xlarge", "instance_count": 1, "node_type": "compute", "partition": "cpu"}
LOGIN = {"name": "login", "instance_type": "ml.m5.xlarge", "instance_count": 1, "node_type": "login"}
ONE_OF = "give it one of instance_type and instance_types"
CONTINUOUS = "needs continuous provisioning; set node_provisioning_mode to continuous, or remove it"
TYPES = [*catalogue()]
NAME = "must be 1 to 63 letters, digits and hyphens, no hyphen at either end"
MODE = "node_provisioning_mode"


@pytest.mark.parametrize(
    ("bad", "messages", "good"),
    [
        # Names
        pytest.param({"name": "-a"}, [f"name: {NAME}, got '-a'; change it"], {"name": "a-1"}, id="cluster name: hyphen first"),
        pytest.param({"name": "a" * 64}, [f"name: {NAME}, got '{'a' * 64}'; change it"], {"name": "a" * 63}, id="cluster name: length"),
        pytest.param({"name": "-" * 63}, [f"name: {NAME}, got '{'-' * 63}'; change it"], {"name": f"a{'-' * 61}a"}, id="cluster name: only hyphens"),
        pytest.param({"instance_groups.1.name": "p_5"}, [f"instance_groups[p_5].name: {NAME}, got 'p_5'; change it"], {"instance_groups.1.name": "p-5"}, id="group name"),
        pytest.param({"instance_groups.1.partition": "p 5"}, [f"instance_groups[work].partition: {NAME}, got 'p 5'; change it"], {"instance_groups.1.partition": "p--5"}, id="partition name"),
        pytest.param({"instance_groups.1.partition": "DEFAULT"}, ["instance_groups[work].partition: DEFAULT is taken: Slurm takes it for the settings of all partitions; use another name"], {"instance_groups.1.partition": "DEFAULT-2"}, id="partition of Slurm's own"),
        pytest.param({"instance_groups.1.partition": "dev"}, ["instance_groups[work].partition: dev is taken: HyperPod makes it; use another name"], {"instance_groups.1.partition": "dev-2"}, id="partition of HyperPod's own"),
        pytest.param({"account": "1111"}, ["account: must be 12 digits in quotes, got '1111'; change it"], {"account": "111122223333"}, id="account"),
        pytest.param(
            {"instance_groups.1.name": "head"},
            ["instance_groups[1].name: an earlier group has the name 'head' too; give each group a name of its own"],
            {"instance_groups.1.name": "Head"},
            id="two groups of one name",
        ),
        # How many groups
        pytest.param({"instance_groups": []}, ["instance_groups: there are 0 groups; a cluster has 1 to 100"], {"instance_groups.1": REMOVED}, id="no group"),
        pytest.param(
            {f"instance_groups.{n}": {**CPU, "name": f"cpu-{n}"} for n in range(2, 101)},
            ["instance_groups: there are 101 groups; a cluster has 1 to 100"],
            {f"instance_groups.{n}": {**CPU, "name": f"cpu-{n}"} for n in range(2, 100)},
            id="too many groups",
        ),
        # Instance types
        pytest.param({"instance_groups.1.instance_type": REMOVED}, [f"instance_groups[work]: has no instance_type; {ONE_OF}"], {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": ["ml.g5.xlarge"]}, id="no type"),
        pytest.param({"instance_groups.1.instance_types": ["ml.g5.xlarge"]}, [f"instance_groups[work]: has both instance_type and instance_types; {ONE_OF}"], {"instance_groups.1.instance_types": []}, id="both type settings"),
        pytest.param({"instance_groups.1.instance_type": "ml.p3.2xlarge"}, ["instance_groups[work].instance_type: HyperPod has no instance type 'ml.p3.2xlarge'; did you mean ml.p4d.24xlarge?"], {"instance_groups.1.instance_type": "ml.p4d.24xlarge"}, id="a type that HyperPod lacks"),
        pytest.param({"instance_groups.1.instance_type": "big"}, ["instance_groups[work].instance_type: HyperPod has no instance type 'big'; use one such as ml.p5.48xlarge or ml.trn1.32xlarge"], {}, id="a type like no other"),
        pytest.param(
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": ["p5.48xlarge", "ml.g5.xlarge", "ml.g5.xlarge"]},
            [
                "instance_groups[work].instance_types: 'ml.g5.xlarge' is there twice; name it once",
                "instance_groups[work].instance_types: HyperPod has no instance type 'p5.48xlarge'; did you mean ml.p5.48xlarge?",
            ],
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": ["ml.p5.48xlarge", "ml.g5.xlarge"]},
            id="several types: one unknown, one twice",
        ),
        pytest.param(
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": [5, "p5.48xlarge"]},
            [
                "instance_groups[work].instance_types: HyperPod has no instance type 'p5.48xlarge'; did you mean ml.p5.48xlarge?",
                "instance_groups[work].instance_types[0]: must be text, got 5; put it in quotes",
            ],
            {},
            id="several types: one is no text and hides no other",
        ),
        pytest.param(
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": TYPES[:21]},
            ["instance_groups[work].instance_types: there are 21 types; use at most 20"],
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": TYPES[:20]},
            id="several types: too many",
        ),
        # Counts
        pytest.param({"instance_groups.1.instance_count": 6759}, ["instance_groups[work].instance_count: must be 0 to 6758, got 6759; change it"], {"instance_groups.1.instance_count": 200}, id="count: too high"),
        pytest.param({"instance_groups.1.instance_count": -2}, ["instance_groups[work].instance_count: must be 0 to 6758, got -2; change it"], {"instance_groups.1.instance_count": 0}, id="count: below 0 is said once"),
        pytest.param({"instance_groups.1.min_instance_count": 3}, ["instance_groups[work].min_instance_count: 3 is more than instance_count, which is 2; lower it, or raise instance_count"], {"instance_groups.1.min_instance_count": 2}, id="minimum above count"),
        pytest.param({"instance_groups.1.min_instance_count": 9999}, ["instance_groups[work].min_instance_count: must be 0 to 6758, got 9999; change it"], {"instance_groups.1.min_instance_count": 0}, id="minimum out of range is said once"),
        # What continuous provisioning has alone
        pytest.param({MODE: "standard", "instance_groups.1.min_instance_count": 1}, [f"instance_groups[work].min_instance_count: {CONTINUOUS}"], {MODE: "standard", "instance_groups.1.min_instance_count": 0}, id="minimum under standard provisioning"),
        pytest.param({MODE: "standard", "instance_groups.1.spot": True}, [f"instance_groups[work].spot: {CONTINUOUS}"], {MODE: "standard", "instance_groups.1.spot": False}, id="spot under standard provisioning"),
        pytest.param(
            {MODE: "standard", "instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": ["ml.g5.xlarge"]},
            [f"instance_groups[work].instance_types: {CONTINUOUS}"],
            {"instance_groups.1.instance_type": REMOVED, "instance_groups.1.instance_types": ["ml.g5.xlarge"]},
            id="several types under standard provisioning",
        ),
        pytest.param({MODE: "standard", "instance_groups.1.ebs_volumes": [{"root_volume": True}]}, [f"instance_groups[work].ebs_volumes[0].root_volume: {CONTINUOUS}"], {MODE: "standard", "instance_groups.1.ebs_volumes": [{"volume_size_gib": 500}]}, id="root volume's key under standard provisioning"),
        pytest.param({MODE: "standard", "instance_groups.1.ebs_volumes": [{"volume_size_gib": 500, "volume_kms_key_arn": KEY}]}, [f"instance_groups[work].ebs_volumes[0].volume_kms_key_arn: {CONTINUOUS}"], {"instance_groups.1.ebs_volumes": [{"volume_size_gib": 500, "volume_kms_key_arn": KEY}]}, id="a volume's key under standard provisioning"),
        pytest.param({MODE: "standard", "encrypt_root_volumes": True}, [f"encrypt_root_volumes: {CONTINUOUS}"], {MODE: "standard", "encrypt_root_volumes": False}, id="encrypted root volumes under standard provisioning"),
        pytest.param({MODE: "sometimes"}, ["node_provisioning_mode: must be one of continuous, standard, got 'sometimes'; use one of these"], {MODE: "standard"}, id="provisioning mode"),
        # Threads
        pytest.param({"instance_groups.1.threads_per_core": 3}, ["instance_groups[work].threads_per_core: must be 1 to 2, got 3; change it"], {"instance_groups.1.threads_per_core": 2}, id="threads: out of range"),
        pytest.param({"instance_groups.2": {**CPU, "instance_type": "ml.c6g.xlarge", "threads_per_core": 2}}, ["instance_groups[cpu].threads_per_core: ml.c6g.xlarge has 1 thread per core, got 2; remove it"], {"instance_groups.2": {**CPU, "instance_type": "ml.c6g.xlarge", "threads_per_core": 1}}, id="threads that the type lacks"),
        # Volumes
        pytest.param({"instance_groups.1.ebs_volumes": [{}]}, ["instance_groups[work].ebs_volumes[0].volume_size_gib: a second volume needs a size; add volume_size_gib, 1 to 16384"], {"instance_groups.1.ebs_volumes": [{"volume_size_gib": 16384}]}, id="volume without size"),
        pytest.param({"instance_groups.1.ebs_volumes": [{"volume_size_gib": 16385}]}, ["instance_groups[work].ebs_volumes[0].volume_size_gib: must be 1 to 16384, got 16385; change it"], {"instance_groups.1.ebs_volumes": [{"volume_size_gib": 1}]}, id="volume too large"),
        pytest.param({"instance_groups.1.ebs_volumes": [{"root_volume": True, "volume_size_gib": 9}]}, ["instance_groups[work].ebs_volumes[0].volume_size_gib: HyperPod decides the size of the root volume; remove it"], {"instance_groups.1.ebs_volumes": [{"root_volume": True}]}, id="root volume with size"),
        pytest.param(
            {"instance_groups.1.ebs_volumes": [{"root_volume": True}, {"root_volume": True}, {"volume_size_gib": 9}, {"volume_size_gib": 9}]},
            [
                "instance_groups[work].ebs_volumes: there are 2 root volumes; a node has one",
                "instance_groups[work].ebs_volumes: there are 2 second volumes; a node has one",
            ],
            {"instance_groups.1.ebs_volumes": [{"root_volume": True}, {"volume_size_gib": 9}]},
            id="two volumes of a kind",
        ),
        # Keys and plans
        pytest.param({"instance_groups.1.ebs_volumes": [{"volume_size_gib": 9, "volume_kms_key_arn": "alias/mine"}]}, ["instance_groups[work].ebs_volumes[0].volume_kms_key_arn: must be a KMS key's ARN such as arn:aws:kms:us-west-2:111122223333:key/…, got 'alias/mine'; change it"], {"instance_groups.1.ebs_volumes": [{"volume_size_gib": 9, "volume_kms_key_arn": KEY}]}, id="key that is no ARN"),
        pytest.param({"instance_groups.1.ebs_volumes": [{"volume_size_gib": 9, "volume_kms_key_arn": KEY.replace("us-west-2", "us-east-1")}]}, ["instance_groups[work].ebs_volumes[0].volume_kms_key_arn: is in 'us-east-1', the cluster in us-west-2; use one of the cluster's region"], {"instance_groups.1.ebs_volumes": [{"root_volume": True, "volume_kms_key_arn": KEY}]}, id="key of another region"),
        pytest.param({"instance_groups.1.training_plan_arn": "large"}, ["instance_groups[work].training_plan_arn: must be a training plan's ARN such as arn:aws:sagemaker:us-west-2:111122223333:training-plan/…, got 'large'; change it"], {"instance_groups.1.training_plan_arn": PLAN}, id="plan that is no ARN"),
        pytest.param({"instance_groups.1.training_plan_arn": PLAN.replace("us-west-2", "us-east-1")}, ["instance_groups[work].training_plan_arn: is in 'us-east-1', the cluster in us-west-2; use one of the cluster's region"], {"instance_groups.1.training_plan_arn": PLAN}, id="plan of another region"),
        pytest.param({"instance_groups.1.training_plan_arn": PLAN, "instance_groups.1.spot": True}, ["instance_groups[work].spot: a training plan's capacity is not spot; remove spot or training_plan_arn"], {"instance_groups.1.spot": True}, id="spot with a plan"),
        # Health checks
        pytest.param({"instance_groups.1.on_start_deep_health_checks": ["instance_stress", "instance_stress"]}, ["instance_groups[work].on_start_deep_health_checks: 'instance_stress' is there twice; name it once"], {"instance_groups.1.on_start_deep_health_checks": ["instance_stress", "instance_connectivity"]}, id="health check twice"),
        pytest.param({"instance_groups.1.on_start_deep_health_checks": ["stress"]}, ["instance_groups[work].on_start_deep_health_checks[0]: must be one of instance_stress, instance_connectivity, got 'stress'; did you mean instance_stress?"], {"instance_groups.1.on_start_deep_health_checks": []}, id="health check that does not exist"),
        # Slurm
        pytest.param({"instance_groups.1.node_type": REMOVED}, ["instance_groups[work].node_type: is missing, and Slurm needs it; set it to controller, login or compute"], {}, id="no node type"),
        pytest.param({"instance_groups.1.partition": REMOVED}, ["instance_groups[work].partition: a compute group must name its partition; add partition: with a name such as the group's"], {"instance_groups.2": {**CPU, "partition": "p5"}}, id="compute without partition"),
        pytest.param({"instance_groups.0.partition": "p5"}, ["instance_groups[head].partition: a controller group has no partition; remove it; only compute groups run jobs"], {}, id="controller with partition"),
        pytest.param({"instance_groups.2": {**LOGIN, "partition": "p5"}}, ["instance_groups[login].partition: a login group has no partition; remove it; only compute groups run jobs"], {"instance_groups.2": LOGIN}, id="login with partition"),
        pytest.param({"instance_groups.1.labels": {"a": "b"}}, ["instance_groups[work].labels: applies only under EKS; remove it"], {"instance_groups.1.labels": {}}, id="labels on Slurm"),
        pytest.param({"instance_groups.1.taints": [{"key": "a", "effect": "no_schedule"}]}, ["instance_groups[work].taints: applies only under EKS; remove it"], {"instance_groups.1.taints": []}, id="taints on Slurm"),
        pytest.param({"instance_groups.0.spot": True}, ["instance_groups[head].spot: when AWS takes a spot controller back, Slurm is gone; remove it"], {"instance_groups.2": {**LOGIN, "spot": True}}, id="spot controller"),
        pytest.param({"instance_groups.0": REMOVED}, ["instance_groups: no group is the controller; give one group node_type: controller and instance_count: 1"], {}, id="no controller"),
        pytest.param({"instance_groups.2": {**LOGIN, "node_type": "controller"}}, ["instance_groups: 2 groups have node_type: controller ([head], [login]); keep one controller group"], {"instance_groups.2": LOGIN}, id="two controllers"),
        pytest.param({"instance_groups.2": LOGIN, "instance_groups.3": {**LOGIN, "name": "login-2"}}, ["instance_groups: 2 groups have node_type: login ([login], [login-2]); keep one login group"], {"instance_groups.2": {**LOGIN, "instance_count": 2}}, id="two login groups"),
        pytest.param({"instance_groups.0.instance_count": 2}, ["instance_groups[head].instance_count: Slurm has one controller node, got 2; set it to 1"], {MODE: "standard", "instance_groups.0.instance_count": 2}, id="two controller nodes under continuous provisioning"),
        pytest.param({MODE: "standard", "instance_groups.0.instance_count": 0}, ["instance_groups[head].instance_count: Slurm has one controller node, got 0; set it to 1"], {MODE: "standard"}, id="no controller node"),
        # The cluster as a whole
        pytest.param({"tiered_storage": {"instance_memory_allocation_percentage": 19}}, ["tiered_storage.instance_memory_allocation_percentage: must be 20 to 100, got 19; change it"], {}, id="tiered storage"),
        # Tags
        pytest.param({"tags": {f"k{n}": "v" for n in range(41)}}, ["tags: there are 41 tags; use at most 40"], {"tags": {f"k{n}": "v" for n in range(40)}}, id="too many tags"),
        pytest.param({"tags": {"AWS:x": "v"}}, ["tags.AWS:x: a tag cannot have the key 'AWS:x'; use 1 to 128 letters, digits, spaces and _.:/=+-@, beginning neither with aws: nor with cdk-hyperpod:"], {"tags": {"awsome": "v"}}, id="tag of AWS's own"),
        pytest.param({"tags": {"cdk-hyperpod:stack": "v"}}, ["tags.cdk-hyperpod:stack: a tag cannot have the key 'cdk-hyperpod:stack'; use 1 to 128 letters, digits, spaces and _.:/=+-@, beginning neither with aws: nor with cdk-hyperpod:"], {"tags": {"hyperpod:stack": "v"}}, id="tag of the library's own"),
        pytest.param({"tags": {"": "v"}}, ["tags.: a tag cannot have the key ''; use 1 to 128 letters, digits, spaces and _.:/=+-@, beginning neither with aws: nor with cdk-hyperpod:"], {"tags": {"a": ""}}, id="tag without key"),
        pytest.param({"tags": {"a": "v" * 257}}, [f"tags.a: a tag cannot have the value '{'v' * 37}...{'v' * 38}'; use at most 256 letters, digits, spaces and _.:/=+-@"], {"tags": {"a": "v" * 256}}, id="tag with a long value"),
        pytest.param({"tags": {"a": "x, y"}}, ["tags.a: a tag cannot have the value 'x, y'; use at most 256 letters, digits, spaces and _.:/=+-@"], {"tags": {"a": "Zoë: x/y@z"}}, id="tag with a comma"),
        pytest.param({"tags": {"Team": "a", "team": "b"}}, ["tags: 2 keys are 'team' but for upper case; keep one of them"], {"tags": {"Team": "a", "teams": "b"}}, id="tags that IAM takes for one"),
    ],
)  # fmt: skip
def test_rule(bad: Changes, messages: list[str], good: Changes) -> None:
    assert judge(bad) == messages
    assert judge(good) == []


@pytest.mark.parametrize("settings", [{}, {"instance_memory_allocation_percentage": 20}], ids=["default", "20 percent"])
def test_tiered_storage_under_slurm_is_a_warning(settings: dict[str, int]) -> None:
    assert judge({"tiered_storage": settings}) == [
        (
            "warning: tiered_storage: AWS announced it for EKS clusters, and a Slurm cluster may refuse it; remove it if "
            "the first deployment fails"
        )
    ]
