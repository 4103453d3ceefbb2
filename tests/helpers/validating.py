"""A small valid cluster, changes of it, and the findings about it."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cdk_hyperpod.errors import ConfigError, Finding
from cdk_hyperpod.loader import LoadedConfig, load_config
from helpers.findings import Found, found

ROOT = Path(__file__).resolve().parents[2]

SMALL: Mapping[str, Any] = yaml.safe_load("""
name: small
region: us-west-2
network:
  availability_zones: [us-west-2c]
instance_groups:
- {name: head, instance_type: ml.m5.xlarge, instance_count: 1, node_type: controller}
- {name: work, instance_type: ml.p5.48xlarge, instance_count: 2, node_type: compute, partition: p5}
""")

REMOVED = object()
"""As a change: the setting is not there."""

Changes = Mapping[str, object]
"""Values by dotted path: `{"instance_groups.1.spot": True}`. A list may grow by one."""


def changed(changes: Changes, base: Mapping[str, Any] = SMALL) -> dict[str, Any]:
    """The data of a file with some settings set or removed."""
    data: Any = copy.deepcopy(dict(base))
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        target = data
        for key in parents:
            target = target.setdefault(key, {}) if isinstance(target, dict) else target[key]
        if value is REMOVED:
            del target[last]
        elif isinstance(target, list) and last == len(target):
            target.append(value)
        else:
            target[last] = value
    return dict(data)


def load_text(text: str | bytes) -> LoadedConfig:
    """Load a file `cluster.yaml` with this text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cluster.yaml")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(path)


def findings_of(text: str | bytes) -> list[Finding]:
    """Every error of a file, or every warning if there is no error."""
    try:
        return list(load_text(text).warnings)
    except ConfigError as error:
        return list(error.findings)


def validate(changes: Changes) -> Found:
    """Code and path of each finding about the small cluster with changes."""
    return found(changed_findings(changes))


def changed_findings(changes: Changes) -> list[Finding]:
    """Every finding about the small cluster with changes."""
    return findings_of(yaml.safe_dump(changed(changes), sort_keys=False, allow_unicode=True))
