"""`cdk-hyperpod job render`: YAML on standard output, or everything that is wrong, in the command's own words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.cli.main import main
from cdk_hyperpod.kubernetes.jobs import job_manifests
from cdk_hyperpod.kubernetes.manifests import to_yaml
from helpers.findings import reported
from helpers.kubernetes.samples import ELASTIC

CONFIGS = Path(__file__).resolve().parents[3] / "helpers" / "configs"
NEEDED = {
    "--name": "llama",
    "--namespace": "research",
    "--image": ELASTIC.image,
    "--instance-type": "ml.p5.48xlarge",
    "--min-replicas": "2",
    "--max-replicas": "8",
}


def arguments(changes: dict[str, str | None] | None = None, *more: str) -> list[str]:
    chosen = {"--replica-increment-step": "2", **(changes or {})}
    options = {name: value for name, value in (NEEDED | chosen).items() if value is not None}
    return ["job", "render", *(part for pair in options.items() for part in pair), *more]


def test_it_writes_what_the_library_renders(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(None, "--", "train.py")) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (to_yaml(job_manifests(ELASTIC)), "")


def grouped(*more: str, **config: object) -> list[str]:
    """A job of 4 nodes in a group of tests/helpers/configs/eks.yaml, or of another file."""
    needed = {name: value for name, value in NEEDED.items() if "replicas" not in name and name != "--instance-type"}
    needed["--namespace"] = "hyperpod-ns-research"
    chosen = {"--nodes": "4", "--group": "p5", "--config": str(CONFIGS / "eks.yaml"), **config}
    options = {name: str(value) for name, value in (needed | chosen).items() if value is not None}
    return ["job", "render", *(part for pair in options.items() for part in pair), *more]


def test_a_job_of_a_group_goes_to_its_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """Their type and labels, the zone, and the taint that keeps others away."""
    assert main(grouped("--", "train.py")) == 0
    (job,) = yaml.safe_load_all(capsys.readouterr().out)
    pod = job["spec"]["replicaSpecs"][0]["template"]["spec"]
    assert pod["nodeSelector"] == {
        "node.kubernetes.io/instance-type": "ml.p5.48xlarge",
        "accelerator": "h100",
        "topology.kubernetes.io/zone": "us-west-2c",
    }
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}
    ]
    assert job["spec"]["replicaSpecs"][0]["replicas"] == 4


@pytest.mark.parametrize(
    ("changes", "code", "option", "named"),
    [
        ({"--group": "p6"}, "job-group-unknown", "--group", "system, p5"),
        ({"--instance-type": "ml.m5.4xlarge"}, "job-instance-type-not-of-group", "--instance-type", "ml.p5.48xlarge"),
        ({"--nodes": "9"}, "job-above-quota", "--nodes", "9 replicas"),
        ({"--min-replicas": "2"}, "job-nodes-with-sizes", "--nodes", "--min-replicas"),
        ({"--nodes": "0"}, "job-nodes-out-of-range", "--nodes", "got 0"),
        ({"--zone": "us-west-2a"}, "job-zone-not-of-group", "--zone", "us-west-2c"),
        ({"--zone": "mars/x"}, "value-malformed", "--zone", "usw2-az3"),
        (
            {"--namespace": "hyperpod-ns-reserch"},
            "job-namespace-misspelled",
            "--namespace",
            "did you mean hyperpod-ns-research?",
        ),
        (
            {"--namespace": "zebra"},
            "job-namespace-unknown",
            "--namespace",
            "hyperpod-ns-research, hyperpod-ns-inference",
        ),
        (
            {"--priority-class": "low"},
            "job-priority-not-of-team",
            "--priority-class",
            "'low' is not allowed for pods of the team research",
        ),
        (
            {"--priority-class": "urgent", "--base-priority-class": "high"},
            "job-priority-not-of-team",
            "--base-priority-class",
            "use one of urgent",
        ),
        (
            {"--priority-class": "urgent", "--namespace": "hyperpod-ns-inference"},
            "job-team-without-priorities",
            "--priority-class",
            "'urgent' is not allowed for pods of the team inference",
        ),
        (
            {"--service-account": "team-pods", "--namespace": "hyperpod-ns-inference"},
            "job-service-account-unknown",
            "--service-account",
            "inference",
        ),
        ({"--group": None}, "job-instance-type-missing", "--instance-type", "--group"),
        (
            {"--config": str(CONFIGS / "everything.yaml")},
            "job-of-slurm-cluster",
            "--config",
            "sbatch",
        ),
    ],
)
def test_job_options_that_do_not_match_the_cluster_file_are_refused(
    capsys: pytest.CaptureFixture[str], changes: dict[str, object], code: str, option: str, named: str
) -> None:
    assert main(grouped(**changes)) == 1
    err = capsys.readouterr().err
    assert (code, option) in reported(err)
    assert any(named in line for line in err.splitlines() if line.endswith(f"[{code}]"))


def test_a_job_has_nodes_or_both_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(grouped(**{"--nodes": None})) == 1
    assert reported(capsys.readouterr().err) == [
        ("job-size-unset", "--min-replicas"),
        ("job-size-unset", "--max-replicas"),
    ]


def test_job_options_that_the_cluster_file_gives_the_team_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    """A zone's id may be that of the group's zone: which one is, differs between accounts."""
    given = {"--zone": "us-west-2c", "--priority-class": "urgent", "--service-account": "team-pods"}
    other = {"--service-account": "own", "--namespace": "hyperpod-ns-inference", "--nodes": "3"}
    for options in (given, {"--zone": "usw2-az3"}, other):
        assert main(grouped(**options)) == 0, capsys.readouterr().err
    assert capsys.readouterr().err == ""


def test_settings_that_aws_excludes_for_elastic_training_are_warnings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = yaml.safe_load((CONFIGS / "eks.yaml").read_text("utf-8"))
    data["eks"] = {"dependencies_chart": "installed"}
    data["teams"] = []
    data["instance_groups"][1] |= {"spot": True}
    data["tiered_storage"] = {}
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(data))
    elastic = {"--nodes": None, "--min-replicas": "2", "--max-replicas": "4", "--replica-increment-step": "1"}
    assert main(grouped(**{"--config": str(file), **elastic})) == 0
    said = capsys.readouterr()
    assert reported(said.err) == [
        ("elastic-training-on-spot", "--group"),
        ("elastic-training-with-tiered-storage", "--config"),
    ]
    assert "elasticPolicy" in said.out
    assert main(grouped(**{"--config": str(file)})) == 0
    assert capsys.readouterr().err == ""


def test_nodes_with_efa_in_two_zones_need_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = yaml.safe_load((CONFIGS / "eks.yaml").read_text("utf-8"))
    data["eks"] = {"dependencies_chart": "installed"}
    data["instance_groups"].append({**data["instance_groups"][1], "name": "far", "availability_zone": "us-west-2a"})
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(data))
    any_group: dict[str, object] = {"--config": str(file), "--group": None, "--instance-type": "ml.p5.48xlarge"}
    assert main(grouped(**any_group)) == 1
    err = capsys.readouterr().err
    assert reported(err) == [("job-zone-ambiguous", "--zone")]
    assert "ml.p5.48xlarge nodes are in us-west-2a and us-west-2c" in err
    for chosen in ({"--zone": "us-west-2a"}, {"--group": "far"}):
        assert main(grouped(**any_group | chosen)) == 0
        assert "topology.kubernetes.io/zone: us-west-2a" in capsys.readouterr().out


def test_sizes_by_values_with_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    changes: dict[str, str | None] = {"--replica-increment-step": None, "--replica-discrete-values": "2,3,8"}
    assert main(arguments(changes, "--train-batch-size", "128", "--learning-rate", "0.0004")) == 0
    config, job = yaml.safe_load_all(capsys.readouterr().out)
    assert job["spec"]["elasticPolicy"]["replicaDiscreteValues"] == [2, 3, 8]
    settings = yaml.safe_load(config["data"]["scale_config.yaml"])["scale_config"]
    assert settings.keys() == {2, 3, 8}
    assert settings[3] == {
        "trainer": {"num_nodes": 3},
        "training_config": {
            "training_args": {
                "train_batch_size": 128,
                "learning_rate": 0.0004,
                "uneven_batch": {
                    "use_uneven_batch": True,
                    "num_dp_groups_with_small_batch_size": 16,
                    "small_local_batch_size": 5,
                    "large_local_batch_size": 6,
                },
            }
        },
    }


LAYER = "topology.k8s.aws/network-node-layer-3"


def test_every_option_reaches_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    more = {
        "--namespace": "hyperpod-ns-research",
        "--replicas": "4",
        "--quota-nodes": "8",
        "--vcpus": "100",
        "--memory-gib": "1000",
        "--nproc-per-node": "4",
        "--scaling-timeout": "61",
        "--graceful-shutdown-timeout": "62",
        "--faulty-scale-down-timeout": "63",
        "--scale-up-snooze-time": "64",
        "--workload-priority-class": "training-priority",
        "--priority-class": "low",
        "--base-priority-class": "high",
        "--service-account": "trainer",
        "--max-retries": "5",
        "--env": "A=b=c",
        "--claim": "fsx=/fsx",
        "--termination-grace-period": "300",
        "--image-pull-policy": "Always",
        "--preferred-topology": LAYER,
        "--log-pattern": ".*loss.*",
        "--log-start-cut-off": "65",
        "--log-recurring-frequency": "66",
    }
    flags = ("--disruption-budget", "--deep-health-check-passed")
    assert main(arguments({**more}, *flags, "--", "train.py", "--epochs", "3")) == 0
    job, budget = yaml.safe_load_all(capsys.readouterr().out)
    spec, (base, elastic) = job["spec"], job["spec"]["replicaSpecs"]
    pod = base["template"]["spec"]
    (container,) = pod["containers"]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "hyperpod-ns-research-localqueue"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "training-priority"
    assert (base["replicas"], elastic["replicas"], elastic["maxReplicas"]) == (2, 2, 6)
    assert spec["elasticPolicy"] == {
        "minReplicas": 2,
        "maxReplicas": 8,
        "replicaIncrementStep": 2,
        "scalingTimeoutInSeconds": 61,
        "gracefulShutdownTimeoutInSeconds": 62,
        "faultyScaleDownTimeoutInSeconds": 63,
    }
    assert spec["runPolicy"]["restartPolicy"] == {"evalPeriodSeconds": 3600, "scaleUpSnoozeTimeInSeconds": 64}
    assert spec["runPolicy"]["jobMaxRetryCount"] == 5
    assert spec["nprocPerNode"] == "4"
    assert (pod["priorityClassName"], elastic["template"]["spec"]["priorityClassName"]) == ("high", "low")
    assert pod["serviceAccountName"] == "trainer"
    assert container["args"] == [
        "--nnodes=4",
        "--nproc-per-node=4",
        "--rdzv-backend=hyperpod",
        "--shutdown-timeout=285",
        "train.py",
        "--epochs",
        "3",
    ]
    assert pod["terminationGracePeriodSeconds"] == 300
    assert container["imagePullPolicy"] == "Always"
    assert pod["nodeSelector"]["sagemaker.amazonaws.com/deep-health-check-status"] == "Passed"
    for part in (job, base["template"]):
        assert part["metadata"]["annotations"] == {"kueue.x-k8s.io/podset-preferred-topology": LAYER}
    assert spec["runPolicy"]["logMonitoringConfiguration"] == [
        {
            "name": "progress",
            "logPattern": ".*loss.*",
            "expectedStartCutOffInSeconds": 65,
            "expectedRecurringFrequencyInSeconds": 66,
        }
    ]
    assert container["env"][-1] == {"name": "A", "value": "b=c"}
    assert container["resources"]["requests"]["cpu"] == "100"
    assert container["resources"]["limits"]["memory"] == "1000Gi"
    assert budget["spec"]["minAvailable"] == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"--replica-discrete-values": "2,4,8"},
            ("job-step-and-sizes", ""),
        ),
        (
            {"--replica-increment-step": None},
            ("job-without-step-or-sizes", ""),
        ),
        (
            {"--min-replicas": "9"},
            ("job-minimum-above-maximum", "--min-replicas"),
        ),
        (
            {"--replica-increment-step": "5"},
            ("job-maximum-not-reached", "--replica-increment-step"),
        ),
        (
            {"--replicas": "5"},
            ("job-replicas-not-a-size", "--replicas"),
        ),
        (
            {"--quota-nodes": "6"},
            ("job-above-quota", "--max-replicas"),
        ),
        ({"--quota-nodes": "0"}, ("job-quota-nodes-too-low", "--quota-nodes")),
        (
            {"--namespace": "kube-system"},
            ("namespace-reserved", "--namespace"),
        ),
        (
            {"--instance-type": "ml.p5.48"},
            ("instance-type-unknown", "--instance-type"),
        ),
        (
            {"--queue": "Q"},
            ("value-malformed", "--queue"),
        ),
        (
            {"--env": "1=x"},
            ("job-variable-name-invalid", "--env.1"),
        ),
        (
            {"--claim": "fsx=fsx"},
            ("value-malformed", "--claim.mount_path"),
        ),
        (
            {"--nproc-per-node": "9"},
            ("job-processes-above-devices", "--nproc-per-node"),
        ),
        (
            {"--instance-type": "ml.trn1.32xlarge", "--nproc-per-node": "33"},
            ("job-processes-above-devices", "--nproc-per-node"),
        ),
        (
            {"--graceful-shutdown-timeout": "0"},
            ("job-without-shutdown-time", "--graceful-shutdown-timeout"),
        ),
        ({"--max-retries": "-1"}, ("value-out-of-range", "--max-retries")),
        ({"--scaling-timeout": "-1"}, ("value-out-of-range", "--scaling-timeout")),
        (
            {"--train-batch-size": "128"},
            ("job-scale-config-with-step", "--train-batch-size"),
        ),
        ({"--train-batch-size": "0"}, ("job-batch-size-too-low", "--train-batch-size")),
        ({"--learning-rate": "0.1"}, ("job-learning-rate-without-batch", "--learning-rate")),
    ],
)
def test_job_errors_name_the_options_of_the_command(
    changes: dict[str, str | None], said: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(changes)) == 1
    out = capsys.readouterr()
    assert (out.out, out.err.split("\n")[0]) == ("", "job render: 1 error")
    assert reported(out.err) == [said]


def test_texts_of_findings_name_options_not_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments({"--learning-rate": "0.1"})) == 1
    err = capsys.readouterr().err
    assert err.count("--train-batch-size") == 2 and "train_batch_size" not in err


@pytest.mark.parametrize(
    ("changes", "code", "option"),
    [
        ({"--log-pattern": "("}, "job-log-pattern-invalid", "--log-pattern"),
        ({"--log-pattern": "loss"}, "job-log-rule-without-limit", "--log-pattern"),
        ({"--log-start-cut-off": "9"}, "job-log-limit-without-pattern", "--log-start-cut-off"),
        ({"--log-pattern": "a", "--log-start-cut-off": "0"}, "value-out-of-range", "--log-start-cut-off"),
        ({"--required-topology": LAYER}, "job-topology-without-queue", "--required-topology"),
        (
            {"--required-topology": LAYER, "--preferred-topology": LAYER, "--queue": "q"},
            "job-topologies-both",
            "--preferred-topology",
        ),
        ({"--spares": "1"}, "job-spares-of-elastic-job", "--spares"),
        ({"--spares": "-1"}, "value-out-of-range", "--spares"),
        ({"--termination-grace-period": "29"}, "value-out-of-range", "--termination-grace-period"),
    ],
)
def test_options_that_would_do_nothing_or_harm(
    changes: dict[str, str | None], code: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(changes)) == 1
    said = capsys.readouterr().err
    assert f"[{code}]" in said and f"  {option}: " in said


def test_spares_count_in_the_quota(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(grouped(**{"--spares": "1", "--nodes": "3", "--namespace": "hyperpod-ns-research"})) == 0
    (job,) = yaml.safe_load_all(capsys.readouterr().out)
    assert job["spec"]["replicaSpecs"][0]["spares"] == 1
    assert main(grouped(**{"--spares": "9", "--nodes": "3", "--namespace": "hyperpod-ns-research"})) == 1
    assert "[job-above-quota]" in capsys.readouterr().err


def test_nodes_of_a_group_without_deep_health_checks_never_pass_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(grouped("--deep-health-check-passed")) == 0
    assert "[job-health-check-not-run]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "seconds", "of_the_processes"),
    [({}, 600, 585), ({"--termination-grace-period": "40"}, 40, 25), ({"--nodes": "1"}, None, None)],
    ids=["several nodes", "given", "one node"],
)
def test_a_checkpoint_has_time(
    more: dict[str, str], seconds: int | None, of_the_processes: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the pod and in the launcher, which otherwise kills the processes after 15 s."""
    assert main(grouped("--", "train.py", **more)) == 0
    (job,) = yaml.safe_load_all(capsys.readouterr().out)
    spec = job["spec"]["replicaSpecs"][0]["template"]["spec"]
    assert spec.get("terminationGracePeriodSeconds") == seconds
    given = [part for part in spec["containers"][0]["args"] if part.startswith("--shutdown-timeout")]
    assert given == ([] if of_the_processes is None else [f"--shutdown-timeout={of_the_processes}"])


@pytest.mark.parametrize(("instance_type", "processes"), [("ml.p5.48xlarge", "8"), ("ml.m5.4xlarge", "16")])
def test_a_process_for_each_accelerator_and_any_number_without_one(instance_type: str, processes: str) -> None:
    assert main(arguments({"--instance-type": instance_type, "--nproc-per-node": processes})) == 0


def test_everything_that_is_wrong_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    wrong: dict[str, str | None] = {"--name": "A", "--image": "", "--max-replicas": "1", "--quota-nodes": "0"}
    assert main(arguments(wrong)) == 1
    assert capsys.readouterr().err.splitlines()[0] == "job render: 4 errors"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"--replica-discrete-values": "2,x"},
            "Invalid value for '--replica-discrete-values': must be whole numbers with commas between them, such as 2,4,8, got '2,x'",
        ),
        ({"--env": "x"}, "Invalid value for '--env': must be NAME=VALUE, got 'x'"),
        ({"--claim": "fsx"}, "Invalid value for '--claim': must be CLAIM=/PATH, got 'fsx'"),
        ({"--min-replicas": "two"}, "Invalid value for '--min-replicas': 'two' is not a valid integer."),
    ],
)
def test_invalid_job_options_exit_with_2_and_one_error(
    changes: dict[str, str | None], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(changes)) == 2
    assert capsys.readouterr().err.endswith(f"error: {said}\n")


def test_the_command_says_no_stack_trace_and_exits_1() -> None:
    command = Path(sys.executable).parent / "cdk-hyperpod"
    done = subprocess.run([command, *arguments({"--max-replicas": "1"})], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("job render: 1 error\n")
    assert reported(done.stderr) == [("job-minimum-above-maximum", "--min-replicas")]
