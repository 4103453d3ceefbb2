"""HyperPod's Helm chart as it lies on this machine: what is in it, whether it is whole, and which images it names.

The chart is in no registry: it is packed from AWS's repository (`GET_CHART`), which also fetches the charts that it
depends on. Nothing here runs Helm or reaches a network.

A chart is somebody else's, and is read before anybody looked at it: nothing in it decides where a file is written, and
what it unpacks to is bounded before it is unpacked. What `helm package` never makes (links, paths out of the chart's
folder) is refused, not left out: the chart that was looked at is the one that is installed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..typed.words import show, shown_name
from ..typed.yaml_text import YamlProblem, read_yaml

GET_CHART = (
    "git clone https://github.com/aws/sagemaker-hyperpod-cli && "
    "helm package --dependency-update sagemaker-hyperpod-cli/helm_chart/HyperPodHelmChart"
)
"""The one command that makes `hyperpod-helm-chart-<version>.tgz` in the current folder."""

MAX_CHART_BYTES = 20_000_000
"""Of all files, and of what any archive unpacks to. The real chart, unpacked, is a quarter of this."""
MAX_CHART_FILES = 5_000
"""Files and folders, those of the charts in the chart too."""
MAX_CHART_DEPTH = 4
"""How many archives lie in each other at most; in the real chart it is two."""
MAX_YAML_BYTES = 1_048_576
"""Of one Chart.yaml."""

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


class NoChart(ValueError):
    """Why a file or folder is no chart, in a few words."""


class HelmChart:
    """The files of a chart, archives in it opened, by their path below the chart's own folder."""

    def __init__(self, path: Path) -> None:
        """Read a folder or a .tgz. Raises OSError for what cannot be read, NoChart for what is none."""
        room = _Room()
        if path.is_dir():
            files = _folder(path, room)
        else:
            with _opened_file(path) as file:
                files = _archive(_read(file, room), room)
        self.files: Mapping[str, bytes] = dict(sorted(_opened(files, room).items()))
        if "Chart.yaml" not in self.files:
            raise NoChart("has no Chart.yaml")
        self.missing: list[str] = _missing(self.files)
        """The charts that this one depends on and does not hold: Helm would refuse to install it."""

    @property
    def digest(self) -> str:
        """`sha256:…` of the names and contents, the same for a folder, its archive, and one packed on another day."""
        digest = hashlib.sha256()
        for name, content in self.files.items():
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return f"sha256:{digest.hexdigest()}"

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


def _set(values: dict[str, object], keys: tuple[str, ...], value: object) -> None:
    *above, last = keys
    for key in above:
        values = values.setdefault(key, {})  # type: ignore[assignment]
    values[last] = value


class _Room:
    """What may still be read of one chart. Every file and every unpacked byte takes of it."""

    def __init__(self) -> None:
        self.bytes = MAX_CHART_BYTES
        self._files = MAX_CHART_FILES

    def take(self, size: int) -> None:
        """Take the bytes of a file; raises NoChart where there are not as many left."""
        self.bytes -= size
        if self.bytes < 0:
            raise NoChart(f"it unpacks to more than {MAX_CHART_BYTES:,} bytes")

    def take_file(self) -> None:
        self._files -= 1
        if self._files < 0:
            raise NoChart(f"it holds more than {MAX_CHART_FILES:,} files")


def _opened_file(path: Path) -> io.BufferedReader:
    """A file of the disk. A device never ends, and a pipe waits for a writer; both are refused."""
    # A pipe would wait in open() already.
    file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NoChart("it is neither a file nor a folder")
    return file


def _read(file: io.BufferedReader | gzip.GzipFile, room: _Room) -> bytes:
    """All of a stream, and never much more than there is room for."""
    content = file.read(room.bytes + 1)
    if len(content) > room.bytes:
        raise NoChart(f"it unpacks to more than {MAX_CHART_BYTES:,} bytes")
    return content


def _folder(path: Path, room: _Room) -> dict[str, bytes]:
    """The files of a folder; a link is followed to a file of the folder, and nowhere else."""
    top = os.path.realpath(path)
    files = {}

    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(path, onerror=refuse):
        for name in folders:
            room.take_file()
            if os.path.islink(os.path.join(folder, name)):
                raise NoChart(f"{shown_name(name)} is a link to a folder: put the folder itself there")
        for name in names:
            room.take_file()
            file = Path(folder, name)
            inside = _checked_name(file.relative_to(path).as_posix())
            if not Path(os.path.realpath(file)).is_relative_to(top):
                raise NoChart(f"{shown_name(inside)} is a link out of the chart's folder")
            with _opened_file(file) as stream:
                files[inside] = _read(stream, room)
            room.take(len(files[inside]))
    return files


def _archive(content: bytes, room: _Room) -> dict[str, bytes]:
    """The files of a packed chart, whose one folder is the chart's name."""
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
                        raise NoChart(f"{shown_name(member.name)} is in it twice")
                    files[name] = _content(archive, member, room)
    except NoChart:
        raise
    except (OSError, EOFError, RecursionError, tarfile.TarError, zlib.error, *_OF_BROKEN_HEADERS) as error:
        raise NoChart(f"it is not a packed chart: {error}") from None
    return files


_OF_BROKEN_HEADERS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What tarfile lets through of a header that says something else than it should."""


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, room: _Room) -> bytes:
    # A sparse file is as large as it says, whatever the archive has of it.
    if not member.isreg() or member.issparse():
        raise NoChart(f"{shown_name(member.name)} is a link, a device or a sparse file")
    room.take(member.size)
    file = archive.extractfile(member)
    assert file is not None
    content = file.read()
    if len(content) != member.size:
        raise NoChart("it ends in the middle of a file")
    return content


def _checked_name(name: str, shown: str = "") -> str:
    """A path that lies below a chart's folder wherever that is, on every system; raises NoChart for any other."""
    parts = name.split("/")
    if (
        any(part in ("", ".", "..") or len(part.encode("utf-8", "replace")) > 255 for part in parts)
        or len(name) > 1_024
        or not name.isprintable()  # which names that are no UTF-8 are not, either
        or "\\" in name
        or re.match("[A-Za-z]:", name)
    ):
        raise NoChart(f"{shown_name(shown or name)} is not a path below the chart's folder")
    return name


def _opened(files: Mapping[str, bytes], room: _Room, depth: int = 1) -> dict[str, bytes]:
    """The files with the archives of other charts opened; a chart that lies there as a folder too is the folder."""
    opened: dict[str, bytes] = {}
    for name, content in files.items():
        packed = re.fullmatch(r"(charts/[^/]+?)-v?[0-9][^/]*\.tgz", name)
        if packed is None:
            found = {} if name.rpartition("/")[2] in _NO_CONTENT else {name: content}
        elif f"{packed[1]}/Chart.yaml" in files:
            found = {}
        elif depth == MAX_CHART_DEPTH:
            raise NoChart(f"{name} is an archive in {depth} others")
        else:
            inside = _opened(_archive(content, room), room, depth + 1)
            found = {f"{packed[1]}/{inner}": text for inner, text in inside.items()}
        for inner in found:
            _checked_name(inner)
        if twice := found.keys() & opened.keys():
            raise NoChart(f"{shown_name(min(twice))} is in it twice")
        opened |= found
    # On a disk that knows no case the second would be written over the first, and the digest would be of neither.
    spelled: dict[str, str] = {}
    for name in opened:
        if (other := spelled.setdefault(name.casefold(), name)) != name:
            raise NoChart(
                f"{shown_name(other)} and {shown_name(name)} are one file on a disk that knows no upper and lower case"
            )
        if above := next((str(parent) for parent in Path(name).parents if str(parent) in opened), None):
            raise NoChart(f"{shown_name(above)} is a file and a folder")
    return opened


def _missing(files: Mapping[str, bytes]) -> list[str]:
    held = {
        _about(name, content).get("name")
        for name, content in files.items()
        if re.fullmatch(r"charts/[^/]+/Chart\.yaml", name)
    }
    wanted = _about("Chart.yaml", files["Chart.yaml"]).get("dependencies") or []
    if not isinstance(wanted, list):
        raise NoChart(f"Chart.yaml has no list of dependencies, but {show(wanted)}")
    names = [item.get("name") if isinstance(item, dict) else None for item in wanted]
    if not all(isinstance(name, str) for name in names):
        raise NoChart("Chart.yaml has a dependency without a name")
    return [shown_name(name) for name in names if name not in held]


def _about(path: str, content: bytes) -> Mapping[object, object]:
    """What a Chart.yaml says."""
    if len(content) > MAX_YAML_BYTES:
        raise NoChart(f"{shown_name(path)} has more than {MAX_YAML_BYTES:,} bytes")
    try:
        about = read_yaml(content)
    except YamlProblem as problem:
        raise NoChart(f"{shown_name(path)} cannot be read as YAML: {problem}") from None
    if not isinstance(about, dict) or not isinstance(about.get("name"), str):
        raise NoChart(f"{shown_name(path)} names no chart, but holds {show(about)}")
    return about
