"""The types that each device plug-in of HyperPod's chart runs on: AWS's lists, ours, and what the real Helm makes of both."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdk_hyperpod.config.cluster import ClusterConfig, InstanceGroup, NetworkConfig
from cdk_hyperpod.config.eks import ChartComponents, EksConfig, ExistingEksCluster
from cdk_hyperpod.config.jobs import ElasticJob, ElasticPolicy
from cdk_hyperpod.facts.device_plugins import CHART_COMMIT, EFA, NEURON, NVIDIA, PLUGINS, published_chart
from cdk_hyperpod.facts.instance_types import InstanceType, catalogue, regions
from cdk_hyperpod.kubernetes.allocatable import DEVICE_KEYS, allocatable, missing_plugins, offered_devices
from cdk_hyperpod.kubernetes.device_plugins import NODE_LABEL, list_values, plugin_lists, with_neuron_types
from cdk_hyperpod.kubernetes.helm_chart import GET_CHART, HelmChart, chart_values, write_files
from cdk_hyperpod.kubernetes.quotas import amounts
from cdk_hyperpod.kubernetes.replicas import replica_resources
from cdk_hyperpod.rules import check_cluster
from cdk_hyperpod.rules.charts import check_chart
from cdk_hyperpod.rules.eks import check_installed_chart
from cdk_hyperpod.rules.jobs import check_job
from helpers.findings import found
from helpers.kubernetes.helm import real_helm, rendered
from tools import make_device_plugins

CHART = Path(__file__).resolve().parents[2] / "helpers" / "chart"
FILES = HelmChart(CHART).files
EXISTING = ExistingEksCluster(name="shared", security_group_id="sg-0123456789abcdef0")
KINDS = [*catalogue().values()]


def kinds(*names: str) -> list[InstanceType]:
    return [catalogue()[name] for name in names]


# -- the table --------------------------------------------------------------------------------------------------------


def test_the_table_is_what_the_tool_makes_of_the_chart() -> None:
    assert make_device_plugins.render(FILES) == make_device_plugins.FILE.read_text("utf-8")
    assert CHART_COMMIT in GET_CHART
    assert published_chart().health_agent_regions == regions().available - {"ap-northeast-2", "ap-south-2"}


def test_the_types_that_hyperpod_has_and_the_chart_leaves_out() -> None:
    missing = {plugin: [kind.name for kind in KINDS if plugin in missing_plugins(kind)] for plugin in PLUGINS}
    assert {plugin: len(names) for plugin, names in missing.items()} == {NVIDIA: 12, EFA: 18, NEURON: 1}
    assert {name.split(".")[1] for name in missing[NVIDIA]} == {"g4dn", "g7"}
    assert missing[NEURON] == ["ml.trn2.3xlarge"]
    assert {"ml.c6i.32xlarge", "ml.g4dn.12xlarge"} <= {*missing[EFA]}


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("ml.p5.48xlarge", {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}),
        ("ml.g4dn.12xlarge", {}),
        ("ml.c6i.32xlarge", {}),
        ("ml.trn2.3xlarge", {"vpc.amazonaws.com/efa": 1}),
        ("ml.m5.4xlarge", {}),
    ],
)
def test_a_node_offers_the_devices_whose_plug_in_runs_on_it(name: str, offered: Mapping[str, int]) -> None:
    kind = catalogue()[name]
    assert offered_devices(kind) == offered
    assert offered_devices(kind, lists_extended=True) == allocatable(kind).devices
    counted = amounts({name: 2})
    assert {key: counted[key] for key in DEVICE_KEYS if counted[key]} == {key: 2 * n for key, n in offered.items()}


# -- jobs and files ---------------------------------------------------------------------------------------------------


def job(name: str, *, replicas: int = 2, lists_extended: bool = False) -> ElasticJob:
    policy = ElasticPolicy(min_replicas=replicas, max_replicas=replicas, replica_discrete_values=(replicas,))
    return ElasticJob(
        name="j", namespace="n", image="i", instance_type=name, elastic_policy=policy, lists_extended=lists_extended
    )


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ml.g4dn.12xlarge", "job-device-not-offered"),
        ("ml.g7.2xlarge", "job-device-not-offered"),
        ("ml.trn2.3xlarge", "job-device-not-offered"),
        ("ml.c6i.32xlarge", "job-without-efa"),
    ],
)
def test_a_job_that_no_node_can_run_is_refused_and_one_without_efa_is_warned_about(name: str, code: str) -> None:
    assert found(check_job(job(name))) == [(code, "instance_type")]
    assert "vpc.amazonaws.com/efa" not in replica_resources(job("ml.c6i.32xlarge"))
    assert found(check_job(job(name, lists_extended=True))) == []


def test_a_job_on_one_node_needs_no_efa() -> None:
    assert found(check_job(job("ml.c6i.32xlarge", replicas=1))) == []


def cluster(chart: str) -> ClusterConfig:
    groups = [
        InstanceGroup(name=name, instance_type=f"ml.{kind}", instance_count=1)
        for name, kind in (("a", "g4dn.12xlarge"), ("b", "trn2.3xlarge"), ("c", "p5.48xlarge"), ("d", "g4dn.xlarge"))
    ]
    return ClusterConfig(
        name="demo",
        region="us-west-2",
        orchestrator="eks",
        instance_groups=tuple(groups),
        eks=EksConfig(dependencies_chart=chart),
    )


def test_a_file_with_such_types_is_warned_about_if_the_chart_is_installed_by_hand() -> None:
    warnings = [each for each in check_cluster(cluster("installed")) if each.code == "device-plugin-missing"]
    assert [warning.path for warning in warnings] == ["eks.dependencies_chart"] * 3
    assert "its nvidia-device-plugin on no ml.g4dn.12xlarge, ml.g4dn.xlarge, whose" in warnings[0].problem
    assert {warning.level for warning in warnings} == {"warning"}
    assert not [each for each in check_cluster(cluster("chart.tgz")) if each.code == "device-plugin-missing"]


# -- what is added ----------------------------------------------------------------------------------------------------


def test_types_of_the_lists_change_nothing() -> None:
    listed = kinds("ml.p5.48xlarge", "ml.trn1.32xlarge", "ml.m5.4xlarge")
    assert list_values(FILES, listed) == {}
    assert with_neuron_types(FILES, listed) == FILES


def test_a_chart_without_lists_stays_as_it_is(tmp_path: Path) -> None:
    """Its plug-ins choose nodes by something else, such as a label that the hardware gets."""
    for name in ("values.yaml", f"charts/{EFA}/values.yaml"):
        shutil.copytree(CHART, tmp_path, dirs_exist_ok=True)
        (tmp_path / name).write_text("[", "utf-8")
    (tmp_path / "values.yaml").write_text("nvidia-device-plugin: {affinity: {nodeAffinity: []}}", "utf-8")
    template = tmp_path / "charts" / NEURON / "templates" / "daemonset.yaml"
    template.write_text("values:\n  - $(rm).x\n", "utf-8")
    files = HelmChart(tmp_path).files
    assert plugin_lists(files) == {NVIDIA: None, EFA: None, NEURON: None}
    assert (list_values(files, KINDS), with_neuron_types(files, KINDS)) == ({}, files)


def test_helm_runs_every_plug_in_on_every_type_that_has_its_device(tmp_path: Path) -> None:
    helm = real_helm(tmp_path)
    write_files(with_neuron_types(FILES, KINDS), tmp_path / "chart")
    registry = "111122223333.dkr.ecr.us-west-2.amazonaws.com/mirror"
    values = chart_values(region="us-west-2", image_registry=registry, neuron=True, lists=list_values(FILES, KINDS))
    objects = {each["metadata"]["name"]: each for each in rendered(helm, tmp_path / "chart", values, tmp_path)}
    for plugin in PLUGINS:
        listed = types_of(objects[plugin])
        assert len(listed) == len(set(listed))
        assert set(plugin_lists(FILES)[plugin] or ()) <= set(listed)
        assert {kind.name for kind in KINDS if plugin in missing_plugins(kind)} <= set(listed)
    assert objects[EFA]["spec"]["template"]["spec"]["containers"][0]["image"].startswith(registry)


def types_of(daemon_set: Any) -> list[str]:
    terms = daemon_set["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    ((expression,),) = [term["matchExpressions"] for term in terms]
    assert (expression["key"], expression["operator"]) == (NODE_LABEL, "In")
    names: list[str] = expression["values"]
    return names


def test_the_template_of_the_neuron_plug_in_stays_yaml() -> None:
    added = with_neuron_types(FILES, kinds("ml.trn2.3xlarge"))
    (name,) = [name for name in FILES if FILES[name] != added[name]]
    assert "ml.trn2.3xlarge" in types_of(yaml.safe_load(added[name]))


# -- the age of a chart, and what is turned off -----------------------------------------------------------------------


def of_agent(tmp_path: Path, version: str, hmaimage: str = "") -> Path:
    """The chart with another health monitoring agent."""
    shutil.copytree(CHART, tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "charts" / "health-monitoring-agent"
    template = folder / "templates" / "daemonset.yaml"
    template.write_text(template.read_text("utf-8").replace("1.0.1892.0_1.0.424.0", version), "utf-8")
    (folder / "values.yaml").write_text(f"region: ''\nhmaimage: '{hmaimage}'\n", "utf-8")
    return tmp_path


def warnings_of(chart: Path, *, closed_region: str | None = None) -> list[str]:
    findings = check_chart(
        chart,
        "chart.tgz",
        digest=HelmChart(chart).digest,
        image_registry=None,
        neuron=False,
        closed_region=closed_region,
    )
    return [finding.code for finding in findings]


@pytest.mark.parametrize(
    ("version", "codes"),
    [
        ("1.0.1481.0_1.0.392.0", ["chart-older"]),
        ("1.0.935.0_1.0.282.0", ["chart-older"]),
        ("1.0.1892.0_1.0.424.0", []),
        ("1.0.2001.0_1.0.500.0", []),
        ("1.1.0.0_1.0.1.0", []),
        ("latest", []),
    ],
)
def test_a_chart_with_an_older_agent_is_an_older_chart(tmp_path: Path, version: str, codes: list[str]) -> None:
    assert warnings_of(of_agent(tmp_path, version)) == codes


@pytest.mark.parametrize("region", ["ap-northeast-2", "ap-south-2"])
def test_in_a_closed_network_the_agent_needs_an_image_of_the_region(tmp_path: Path, region: str) -> None:
    chart = of_agent(tmp_path, "1.0.1892.0_1.0.424.0")
    assert warnings_of(chart, closed_region=region) == ["health-agent-image-missing"]
    assert warnings_of(chart, closed_region="us-west-2") == warnings_of(chart) == []
    own = of_agent(tmp_path, "1.0.1892.0_1.0.424.0", hmaimage="mirror/agent:1")
    assert warnings_of(own, closed_region=region) == []


def test_the_same_for_a_chart_that_is_installed_by_hand() -> None:
    there = ClusterConfig(
        name="demo",
        region="ap-south-2",
        orchestrator="eks",
        instance_groups=(),
        network=NetworkConfig(internet_egress=False),
        eks=EksConfig(dependencies_chart="installed", existing_cluster=EXISTING),
    )
    assert found(check_installed_chart(there)) == [("health-agent-image-missing", "eks.dependencies_chart")]
    open_network = dataclasses.replace(there, network=NetworkConfig(internet_egress=True))
    assert found(check_installed_chart(open_network)) == []


def test_only_what_is_turned_off_is_a_value() -> None:
    def values(**components: bool) -> object:
        return chart_values(
            region="us-west-2", image_registry=None, neuron=True, components=ChartComponents(**components)
        )

    assert values() == {"health-monitoring-agent": {"region": "us-west-2"}}
    assert values(kubeflow_operator=False, deep_health_check=False) == {
        "health-monitoring-agent": {"region": "us-west-2"},
        "trainingOperators": {"enabled": False},
        "deep-health-check": {"enabled": False},
    }


def test_helm_leaves_out_what_is_turned_off(tmp_path: Path) -> None:
    off = ChartComponents(kubeflow_operator=False, mpi_operator=False, job_auto_restart=False, deep_health_check=False)
    write_files(FILES, tmp_path / "chart")
    values = chart_values(region="us-west-2", image_registry="mirror", neuron=True, components=off)
    names = {each["metadata"]["name"] for each in rendered(real_helm(tmp_path), tmp_path / "chart", values, tmp_path)}
    assert names == {*PLUGINS, "health-monitoring-agent"}


def test_deep_health_checks_need_their_part_of_the_chart() -> None:
    off = ChartComponents(deep_health_check=False)
    checked = InstanceGroup(
        name="p5", instance_type="ml.p5.48xlarge", instance_count=1, on_start_deep_health_checks=("instance_stress",)
    )
    whole = dataclasses.replace(cluster("chart.tgz"), eks=EksConfig(dependencies_chart="c.tgz", chart_components=off))
    assert "deep-health-check-off" not in {each.code for each in check_cluster(whole)}
    wrong = dataclasses.replace(whole, instance_groups=(*whole.instance_groups, checked))
    assert "deep-health-check-off" in {each.code for each in check_cluster(wrong)}
    by_hand = dataclasses.replace(whole, eks=EksConfig(dependencies_chart="installed", chart_components=off))
    assert ("installed-chart-setting", "eks.chart_components") in found(check_cluster(by_hand))
