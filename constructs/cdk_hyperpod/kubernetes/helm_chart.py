"""HyperPod's Helm chart on this machine: its files, whether it is complete, and the images that it names.

The chart is in no registry. `GET_CHART` packs it from AWS's repository, and fetches the charts that it depends on. Nothing here runs
Helm or reaches a network.

A chart is untrusted input: nothing in it decides where a file is written, and the size of what it unpacks to is limited before it is
unpacked. Contents that `helm package` never produces (links, paths out of the chart's folder) are refused and not skipped, so that
the chart that was validated is the one that is installed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..config.eks import ChartComponents
from ..facts.device_plugins import CHART_COMMIT
from ..typed.regular_file import opened_regular
from ..typed.words import shown_name
from ..typed.yaml_text import YamlProblem, read_yaml

GET_CHART = (
    "git clone https://github.com/aws/sagemaker-hyperpod-cli && "
    f"git -C sagemaker-hyperpod-cli checkout --quiet {CHART_COMMIT} && "
    "helm package --dependency-update sagemaker-hyperpod-cli/helm_chart/HyperPodHelmChart"
)
"""The command that creates `hyperpod-helm-chart-<version>.tgz` in the current folder."""

MAX_CHART_BYTES = 20_000_000
"""The limit for all files together, and for each archive's content. The real chart has a quarter of this."""
MAX_CHART_FILES = 5_000
"""The limit for files and folders, including those of charts in the chart."""
MAX_CHART_DEPTH = 4
"""The limit for nested archives. The real chart has two."""
MAX_YAML_BYTES = 1_048_576
"""The limit for one Chart.yaml."""

# Registries that a closed network cannot reach. An image without a registry is Docker Hub's.
_PUBLIC = re.compile(
    r"image:\s*[\"']?((?:docker\.io|gcr\.io|ghcr\.io|nvcr\.io|public\.ecr\.aws|quay\.io|registry\.k8s\.io)/[^\s\"']+)"
)
# Leftovers of a chart's author, and files that change whenever a chart is packed.
_NO_CONTENT = {"Chart.lock", ".DS_Store"}
_ARCHIVE = re.compile(r"(charts/[^/]+?)-v?[0-9][^/]*\.tgz")
_CHART_IN_CHART = re.compile(r"charts/[^/]+/Chart\.yaml")
_DRIVE = re.compile("[A-Za-z]:")
_MAX_PATH = 1_024
_MAX_NAME_BYTES = 255

# Where the chart takes its images from public registries by a value: the value, and the image without its registry.
_IMAGE_VALUES: Mapping[tuple[str, ...], str] = {
    ("training-operators", "image", "repository"): "kubeflow/training-operator",
    ("mpi-operator", "mpiOperator", "image", "repository"): "mpioperator/mpi-operator",
    ("nvidia-device-plugin", "image", "repository"): "nvidia/k8s-device-plugin",
    ("aws-efa-k8s-device-plugin", "image", "repository"): "eks/aws-efa-k8s-device-plugin",
}

# The conditions of the chart's Chart.yaml.
_SWITCHES: Mapping[str, tuple[str, ...]] = {
    "kubeflow_operator": ("trainingOperators", "enabled"),
    "mpi_operator": ("mpi-operator", "enabled"),
    "job_auto_restart": ("job-auto-restart", "enabled"),
    "deep_health_check": ("deep-health-check", "enabled"),
}


class InvalidChart(ValueError):
    """Why a file or folder is not a valid chart, in a few words."""


class HelmChart:
    """The files of a chart, with nested archives unpacked, by their path below the chart's own folder."""

    def __init__(self, path: Path) -> None:
        """Read a folder or a .tgz. Raises OSError if it cannot be read, InvalidChart if it is not a valid chart."""
        room = _Room()
        if path.is_dir():
            files = _folder(path, room)
        else:
            with opened_regular(path) as file:
                files = _archive(_read(file, room), room)
        self.files: Mapping[str, bytes] = dict(sorted(_opened(files, room).items()))
        if "Chart.yaml" not in self.files:
            raise InvalidChart("has no Chart.yaml")
        self.missing: list[str] = _missing(self.files)
        """The charts that this one depends on and does not contain. Helm would refuse to install it."""

    @property
    def digest(self) -> str:
        """`sha256:…` of the names and contents, the same for a folder, its archive, and one packed on another day."""
        return digest_of(self.files)

    def public_images(self) -> Iterator[tuple[str, str]]:
        """File and image of every template with a literal public registry, which no value can change."""
        for name, content in self.files.items():
            if "/templates/" in f"/{name}":
                for image in _PUBLIC.findall(content.decode("utf-8", "replace")):
                    yield name, image

    def write(self, folder: Path) -> None:
        """Write the chart to a folder, with nested archives unpacked."""
        write_files(self.files, folder)


def digest_of(files: Mapping[str, bytes]) -> str:
    """`sha256:…` of the names and contents of a chart's files."""
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"sha256:{digest.hexdigest()}"


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a chart to a folder."""
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def chart_values(
    *,
    region: str,
    image_registry: str | None,
    neuron: bool,
    lists: Mapping[str, object] | None = None,
    components: ChartComponents | None = None,
) -> dict[str, object]:
    """The values with which this library installs the chart. `lists`: of its device plug-ins (`device_plugins.list_values`).
    `components`: what the configuration turns off.

    Neuron's device plug-in has a literal image. If no group has Neuron devices and images come from your own registry, the plug-in is
    disabled.
    """
    values: dict[str, object] = {"health-monitoring-agent": {"region": region}, **(lists or {})}
    for name, keys in _SWITCHES.items():
        if components is not None and getattr(components, name) is False:
            _set(values, keys, False)
    if image_registry is None:
        return values
    for keys, image in _IMAGE_VALUES.items():
        _set(values, keys, f"{image_registry}/{image}")
    if not neuron:
        _set(values, ("neuron-device-plugin", "devicePlugin", "enabled"), False)
    return values


def _set(values: dict[str, object], keys: tuple[str, ...], value: object) -> None:
    *above, last = keys
    for key in above:
        values = values.setdefault(key, {})  # type: ignore[assignment]
    values[last] = value


class _Room:
    """The rest of the limits of one chart. Every file and every unpacked byte uses some."""

    def __init__(self) -> None:
        self.bytes = MAX_CHART_BYTES
        self._files = MAX_CHART_FILES

    def take(self, size: int) -> None:
        """Use the bytes of a file. Raises InvalidChart if fewer are left."""
        self.bytes -= size
        if self.bytes < 0:
            raise InvalidChart(f"it unpacks to more than {MAX_CHART_BYTES:,} bytes")

    def take_file(self) -> None:
        self._files -= 1
        if self._files < 0:
            raise InvalidChart(f"it holds more than {MAX_CHART_FILES:,} files")


def _read(file: io.BufferedReader | gzip.GzipFile, room: _Room) -> bytes:
    """All of a stream, but at most one byte more than the limit."""
    content = file.read(room.bytes + 1)
    if len(content) > room.bytes:
        raise InvalidChart(f"it unpacks to more than {MAX_CHART_BYTES:,} bytes")
    return content


def _folder(path: Path, room: _Room) -> dict[str, bytes]:
    """The files of a folder. A link is followed only to a file in the same folder tree."""
    top = os.path.realpath(path)
    files = {}

    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(path, onerror=refuse):
        for name in folders:
            room.take_file()
            if os.path.islink(os.path.join(folder, name)):
                raise InvalidChart(f"{shown_name(name)} is a link to a folder: put the folder itself there")
        for name in names:
            room.take_file()
            file = Path(folder, name)
            inside = _checked_name(file.relative_to(path).as_posix())
            if not Path(os.path.realpath(file)).is_relative_to(top):
                raise InvalidChart(f"{shown_name(inside)} is a link out of the chart's folder")
            with opened_regular(file) as stream:
                files[inside] = _read(stream, room)
            room.take(len(files[inside]))
    return files


def _archive(content: bytes, room: _Room) -> dict[str, bytes]:
    """The files of a packed chart, without its top folder, which has the chart's name."""
    files: dict[str, bytes] = {}
    try:
        # Unpacked first, because tarfile takes any number of bytes for one header.
        with gzip.open(io.BytesIO(content)) as packed:
            unpacked = _read(packed, room)
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
            for member in archive:
                room.take_file()
                if not member.isdir():
                    _, _, name = _checked_name(member.name).partition("/")
                    if _checked_name(name, member.name) in files:
                        raise InvalidChart(f"{shown_name(member.name)} is in it twice")
                    files[name] = _content(archive, member, room)
    except InvalidChart:
        raise
    except (OSError, EOFError, RecursionError, tarfile.TarError, zlib.error, *_OF_BROKEN_HEADERS) as error:
        raise InvalidChart(f"it is not a packed chart: {error}") from None
    return files


_OF_BROKEN_HEADERS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that tarfile raises for an invalid header, besides TarError."""


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, room: _Room) -> bytes:
    # A sparse file may be larger than its data in the archive.
    if not member.isreg() or member.issparse():
        raise InvalidChart(f"{shown_name(member.name)} is a link, a device or a sparse file")
    room.take(member.size)
    file = archive.extractfile(member)
    assert file is not None
    content = file.read()
    if len(content) != member.size:
        raise InvalidChart("it ends in the middle of a file")
    return content


def _checked_name(name: str, shown: str = "") -> str:
    """A valid path below a chart's folder, on every system. Raises InvalidChart for any other. `shown`: what the error names."""
    if not _is_path_below(name):
        raise InvalidChart(f"{shown_name(shown or name)} is not a path below the chart's folder")
    return name


def _is_path_below(name: str) -> bool:
    if len(name) > _MAX_PATH or _DRIVE.match(name) or "\\" in name:
        return False
    if not name.isprintable():
        return False  # names that are not UTF-8 are not printable
    return all(_is_plain(part) for part in name.split("/"))


def _is_plain(part: str) -> bool:
    """Whether a part of a path is a name of a file or folder."""
    return part not in ("", ".", "..") and len(part.encode("utf-8", "replace")) <= _MAX_NAME_BYTES


def _opened(files: Mapping[str, bytes], room: _Room, depth: int = 1) -> dict[str, bytes]:
    """The files, with the archives of other charts unpacked."""
    opened: dict[str, bytes] = {}
    for name, content in files.items():
        found = _unpacked(name, content, files, room, depth)
        for inner in found:
            _checked_name(inner)
            if inner in opened:
                raise InvalidChart(f"{shown_name(inner)} is in it twice")
        opened |= found
    _require_distinct_paths(opened)
    return opened


def _unpacked(name: str, content: bytes, files: Mapping[str, bytes], room: _Room, depth: int) -> dict[str, bytes]:
    """A file, or the files of an archive. If a chart is both an archive and a folder, the folder counts."""
    packed = _ARCHIVE.fullmatch(name)
    if packed is None:
        is_content = name.rpartition("/")[2] not in _NO_CONTENT
        return {name: content} if is_content else {}
    folder = packed[1]
    if f"{folder}/Chart.yaml" in files:
        return {}
    if depth == MAX_CHART_DEPTH:
        raise InvalidChart(f"{name} is an archive in {depth} others")
    inside = _opened(_archive(content, room), room, depth + 1)
    return {f"{folder}/{inner}": text for inner, text in inside.items()}


def _require_distinct_paths(files: Mapping[str, bytes]) -> None:
    """On a disk that ignores case, one file would overwrite the other, and the digest would match neither."""
    spelled: dict[str, str] = {}
    for name in files:
        other = spelled.setdefault(name.casefold(), name)
        if other != name:
            raise InvalidChart(
                f"{shown_name(other)} and {shown_name(name)} are one file on a disk that knows no upper and lower case"
            )
        for parent in Path(name).parents:
            if str(parent) in files:
                raise InvalidChart(f"{shown_name(str(parent))} is a file and a folder")


def _missing(files: Mapping[str, bytes]) -> list[str]:
    """The names of the charts that this one depends on and does not contain."""
    contained = {_about(name, content)["name"] for name, content in files.items() if _CHART_IN_CHART.fullmatch(name)}
    return [shown_name(name) for name in _dependencies(files["Chart.yaml"]) if name not in contained]


def _dependencies(chart_yaml: bytes) -> list[str]:
    """The names of a chart's dependencies."""
    wanted = _about("Chart.yaml", chart_yaml).get("dependencies") or []
    if not isinstance(wanted, list):
        raise InvalidChart("Chart.yaml has no list of dependencies")
    names = []
    for item in wanted:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str):
            raise InvalidChart("Chart.yaml has a dependency without a name")
        names.append(name)
    return names


def _about(path: str, content: bytes) -> Mapping[object, object]:
    """The content of a Chart.yaml. Another file may hold secrets, so no message has a line of it."""
    if len(content) > MAX_YAML_BYTES:
        raise InvalidChart(f"{shown_name(path)} has more than {MAX_YAML_BYTES:,} bytes")
    try:
        about = read_yaml(content)
    except YamlProblem as problem:
        raise InvalidChart(f"{shown_name(path)} is not valid YAML in line {problem.line}") from None
    if not isinstance(about, dict) or not isinstance(about.get("name"), str):
        raise InvalidChart(f"{shown_name(path)} names no chart")
    return about
