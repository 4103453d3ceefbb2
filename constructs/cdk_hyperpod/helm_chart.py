"""HyperPod's Helm chart as it lies on this machine: what is in it, whether it is whole, and which images it names.

The chart is in no registry: it is packed from AWS's repository (`GET_CHART`), which also fetches the charts that it
depends on. Nothing here runs Helm or reaches a network.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from ._structure import show
from .errors import Finding

GET_CHART = (
    "git clone https://github.com/aws/sagemaker-hyperpod-cli && "
    "helm package --dependency-update sagemaker-hyperpod-cli/helm_chart/HyperPodHelmChart"
)
"""The one command that makes `hyperpod-helm-chart-<version>.tgz` in the current folder."""

MAX_CHART_BYTES = 50_000_000
"""The real chart, unpacked, is a tenth of this."""

# Registries that a closed network cannot reach. An image without a registry is Docker Hub's.
_PUBLIC = re.compile(
    r"image:\s*[\"']?((?:docker\.io|gcr\.io|ghcr\.io|nvcr\.io|public\.ecr\.aws|quay\.io|registry\.k8s\.io)/[^\s\"']+)"
)
# What a chart's author may have lying about, and what changes whenever a chart is packed.
_NO_CONTENT = {"Chart.lock", ".DS_Store"}

# Where the chart takes its images from public registries by a value: the value, and the image without its registry.
_IMAGE_VALUES: Mapping[tuple[str, ...], str] = {
    ("training-operators", "image", "repository"): "kubeflow/training-operator",
    ("mpi-operator", "mpiOperator", "image", "repository"): "mpioperator/mpi-operator",
    ("nvidia-device-plugin", "image", "repository"): "nvidia/k8s-device-plugin",
    ("aws-efa-k8s-device-plugin", "image", "repository"): "eks/aws-efa-k8s-device-plugin",
}


class HelmChart:
    """The files of a chart, archives in it opened, by their path below the chart's own folder."""

    def __init__(self, path: Path) -> None:
        """Read a folder or a .tgz. Raises OSError for what cannot be read, ValueError for what is no chart."""
        files = _folder(path) if path.is_dir() else _archive(path.read_bytes())
        self.files: Mapping[str, bytes] = dict(sorted(_opened(files)))
        if "Chart.yaml" not in self.files:
            raise ValueError("has no Chart.yaml")

    @property
    def digest(self) -> str:
        """`sha256:…` of the names and contents, the same for a folder, its archive, and one packed on another day."""
        digest = hashlib.sha256()
        for name, content in self.files.items():
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return f"sha256:{digest.hexdigest()}"

    @property
    def missing(self) -> list[str]:
        """The charts that this one depends on and does not hold: Helm would refuse to install it."""
        about = yaml.safe_load(self.files["Chart.yaml"]) or {}
        held = {
            (yaml.safe_load(content) or {}).get("name")
            for name, content in self.files.items()
            if re.fullmatch(r"charts/[^/]+/Chart\.yaml", name)
        }
        return [item["name"] for item in about.get("dependencies", []) if item["name"] not in held]

    def public_images(self) -> Iterator[tuple[str, str]]:
        """File and image of every template that names a public registry outright, so that no value can change it."""
        for name, content in self.files.items():
            if "/templates/" in f"/{name}":
                for image in _PUBLIC.findall(content.decode("utf-8", "replace")):
                    yield name, image

    def write(self, folder: Path) -> None:
        """Put the chart into a folder, archives in it unpacked."""
        for name, content in self.files.items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)


def chart_values(*, region: str, image_registry: str | None, neuron: bool) -> dict[str, object]:
    """The values that this library installs the chart with.

    Neuron's device plug-in names its image outright; where no group has Neuron devices and images come from a registry
    of one's own, it is left out.
    """
    values: dict[str, object] = {"health-monitoring-agent": {"region": region}}
    if image_registry is None:
        return values
    for keys, image in _IMAGE_VALUES.items():
        _set(values, keys, f"{image_registry}/{image}")
    if not neuron:
        _set(values, ("neuron-device-plugin", "devicePlugin", "enabled"), False)
    return values


def check_chart(
    path: Path, shown: str, *, digest: str | None, image_registry: str | None, neuron: bool
) -> Iterator[Finding]:
    """Whether the chart is there, whole, the one that was meant, and can be installed where there is no internet."""
    place = "eks.dependencies_chart"
    try:
        chart = HelmChart(path)
    except FileNotFoundError:
        yield Finding(path=place, problem=f"there is no chart {show(shown)}", remedy=f"get it with: {GET_CHART}")
        return
    except (OSError, ValueError, tarfile.TarError, EOFError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        yield Finding(
            path=place, problem=f"{show(shown)} is no Helm chart ({reason})", remedy=f"get it with: {GET_CHART}"
        )
        return
    if chart.missing:
        yield Finding(
            path=place,
            problem=f"{show(shown)} lacks the charts that it depends on: {', '.join(chart.missing)}",
            remedy=f"run helm dependency update on it, or get it with: {GET_CHART}",
        )
    if digest is None:
        yield Finding(
            path=f"{place}_digest",
            problem="is missing, and the chart must be the one that you looked at",
            remedy=f"add `dependencies_chart_digest: {chart.digest}`",
        )
    elif digest != chart.digest:
        yield Finding(
            path=f"{place}_digest",
            problem=f"the chart's content is {chart.digest}, got {digest}",
            remedy="look at what changed, then change the digest; or use the chart that it was",
        )
    for name, image in chart.public_images() if image_registry else ():
        if neuron or "neuron-device-plugin" not in name:
            yield Finding(
                path=place,
                problem=f"{name} takes {image} outright, which no setting can change",
                remedy=f"write {image_registry}/{image.partition('/')[2]} there, and change the digest",
            )


def _set(values: dict[str, object], keys: tuple[str, ...], value: object) -> None:
    *above, last = keys
    for key in above:
        values = values.setdefault(key, {})  # type: ignore[assignment]
    values[last] = value


def _folder(path: Path) -> dict[str, bytes]:
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def _archive(content: bytes) -> dict[str, bytes]:
    """The files of a packed chart, whose one folder is the chart's name."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        if sum(member.size for member in archive.getmembers()) > MAX_CHART_BYTES:
            raise ValueError(f"it unpacks to more than {MAX_CHART_BYTES:,} bytes")
        for member in archive.getmembers():
            _, _, name = member.name.partition("/")
            if member.isfile() and name and ".." not in name.split("/"):
                file = archive.extractfile(member)
                assert file is not None
                files[name] = file.read()
    return files


def _opened(files: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """The files with the archives of other charts opened; a chart that lies there as a folder too is the folder."""
    for name, content in files.items():
        packed = re.fullmatch(r"(charts/[^/]+?)-v?[0-9][^/]*\.tgz", name)
        if packed is None:
            if name.rpartition("/")[2] not in _NO_CONTENT:
                yield name, content
        elif f"{packed[1]}/Chart.yaml" not in files:
            for inner, text in _opened(_archive(content)):
                yield f"{packed[1]}/{inner}", text
