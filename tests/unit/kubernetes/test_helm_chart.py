"""HyperPod's Helm chart: what makes it the one that was meant, what is refused, and what the real Helm says of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.kubernetes.helm_chart import HelmChart, chart_values
from cdk_hyperpod.rules.charts import check_chart
from helpers.findings import Found, found
from helpers.kubernetes.helm import real_helm

CHART = Path(__file__).resolve().parents[2] / "helpers" / "chart"
REGISTRY = "111122223333.dkr.ecr.us-west-2.amazonaws.com/mirror"


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A copy of the stand-in for HyperPod's chart, to be spoilt."""
    shutil.copytree(CHART, tmp_path / "chart")
    return tmp_path / "chart"


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return real_helm(tmp_path_factory.mktemp("bin"))


def pack(folder: Path, target: Path, time: int = 1) -> Path:
    """The folder as `helm package` packs it: one folder of the chart's name."""
    with tarfile.open(target, "w:gz") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                member = tarfile.TarInfo(f"{folder.name}/{file.relative_to(folder).as_posix()}")
                member.size, member.mtime = file.stat().st_size, time
                with file.open("rb") as content:
                    archive.addfile(member, content)
    return target


def findings(path: Path, *, digest: str | None = None, registry: str | None = None, neuron: bool = False) -> Found:
    return found(check_chart(path, "charts/hyperpod", digest=digest, image_registry=registry, neuron=neuron))


# -- the digest -------------------------------------------------------------------------------------------------------


def test_a_chart_is_the_same_as_a_folder_packed_and_packed_again(chart: Path, tmp_path: Path) -> None:
    digest = HelmChart(chart).digest
    assert HelmChart(pack(chart, tmp_path / "one.tgz", time=1)).digest == digest
    assert HelmChart(pack(chart, tmp_path / "two.tgz", time=2)).digest == digest
    # `helm package --dependency-update` leaves its lock, with the hour, and packs the charts inside.
    (chart / "Chart.lock").write_text("generated: today\n", "utf-8")
    inner = chart / "charts" / "mpi-operator"
    pack(inner, chart / "charts" / "mpi-operator-0.1.0.tgz")
    shutil.rmtree(inner)
    assert HelmChart(chart).digest == digest


def test_a_chart_that_lies_there_twice_is_the_folder(chart: Path) -> None:
    digest = HelmChart(chart).digest
    stale = chart.parent / "mpi-operator"
    shutil.copytree(chart / "charts" / "mpi-operator", stale)
    (stale / "values.yaml").write_text("stale: true\n", "utf-8")
    pack(stale, chart / "charts" / "mpi-operator-0.1.0.tgz")
    assert HelmChart(chart).digest == digest


def test_any_change_of_a_chart_changes_its_digest(chart: Path) -> None:
    digest = HelmChart(chart).digest
    (chart / "charts" / "mpi-operator" / "values.yaml").write_text("{}\n", "utf-8")
    assert HelmChart(chart).digest != digest


# -- what is refused --------------------------------------------------------------------------------------------------


def test_the_chart_that_was_meant_is_silence() -> None:
    assert findings(CHART, digest=HelmChart(CHART).digest) == []
    assert findings(CHART, digest=HelmChart(CHART).digest, registry=REGISTRY) == []


def test_a_chart_that_is_not_there_is_refused_with_the_command_that_gets_it(tmp_path: Path) -> None:
    assert findings(tmp_path / "no") == [("chart-not-found", "eks.dependencies_chart")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"not an archive", "it is not a packed chart: Not a gzipped file (b'no')", id="no archive"),
        pytest.param(b"", "it is not a packed chart: empty file", id="empty"),
    ],
)
def test_a_file_that_is_no_chart_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "chart.tgz").write_bytes(content)
    assert findings(tmp_path / "chart.tgz") == [("chart-invalid", "eks.dependencies_chart")]
    (finding,) = check_chart(tmp_path / "chart.tgz", "charts/hyperpod", digest=None, image_registry=None, neuron=False)
    assert finding.problem.endswith(f"({reason})")


def test_a_folder_that_is_no_chart_is_refused(tmp_path: Path) -> None:
    assert findings(tmp_path) == [("chart-invalid", "eks.dependencies_chart")]


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdk_hyperpod.kubernetes.helm_chart.MAX_CHART_BYTES", 10)
    assert findings(pack(CHART, tmp_path / "chart.tgz")) == [("chart-invalid", "eks.dependencies_chart")]


def test_a_chart_without_the_charts_that_it_depends_on_is_refused(chart: Path) -> None:
    for name in ("mpi-operator", "nvidia-device-plugin"):
        shutil.rmtree(chart / "charts" / name)
    assert findings(chart, digest=HelmChart(chart).digest) == [("chart-incomplete", "eks.dependencies_chart")]


def test_without_a_digest_the_error_says_what_it_is() -> None:
    assert findings(CHART) == [("chart-digest-missing", "eks.dependencies_chart_digest")]


def test_another_chart_than_the_one_that_was_meant_is_refused() -> None:
    other = f"sha256:{'0' * 64}"
    assert findings(CHART, digest=other) == [("chart-digest-differs", "eks.dependencies_chart_digest")]


def test_an_image_that_no_setting_can_change_is_refused_where_images_come_from_a_registry() -> None:
    assert findings(CHART, digest=HelmChart(CHART).digest, registry=REGISTRY, neuron=True) == [
        ("chart-image-not-configurable", "eks.dependencies_chart")
    ]


# -- the real Helm ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("registry", [None, REGISTRY])
def test_helm_takes_the_chart_with_our_values(helm: Path, tmp_path: Path, registry: str | None) -> None:
    HelmChart(pack(CHART, tmp_path / "chart.tgz")).write(tmp_path / "chart")
    values = tmp_path / "values.json"
    values.write_text(json.dumps(chart_values(region="us-west-2", image_registry=registry, neuron=False)), "utf-8")

    linted = subprocess.run(
        [helm, "lint", tmp_path / "chart", "-f", values], check=False, capture_output=True, text=True
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr
    made = subprocess.run(
        [helm, "template", "dependencies", tmp_path / "chart", "--namespace", "kube-system", "-f", values],
        check=True,
        capture_output=True,
        text=True,
    )

    images = {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]["containers"][0]["image"]
        for document in yaml.safe_load_all(made.stdout)
    }
    assert "us-west-2" in images.pop("health-monitoring-agent")
    if registry is None:
        assert images["nvidia-device-plugin"] == "nvcr.io/nvidia/k8s-device-plugin:1"
        assert "neuron-device-plugin" in images
    else:
        assert set(images.values()) == {
            f"{REGISTRY}/{image}:1"
            for image in (
                "kubeflow/training-operator",
                "mpioperator/mpi-operator",
                "nvidia/k8s-device-plugin",
                "eks/aws-efa-k8s-device-plugin",
            )
        }
