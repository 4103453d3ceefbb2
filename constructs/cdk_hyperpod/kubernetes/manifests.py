"""Kubernetes objects as plain data, and as YAML.

A stack applies the objects of this folder in this order. `rules/teams.py` and `rules/governance.py` validate the configuration
before:

1. with task governance `scheduler_properties` for the cluster and `compute_quota_properties` for each team: HyperPod then
   makes the teams' namespaces, and they get the `pod_security_labels`;
2. `priority_class_manifests` once and `team_manifests` for each team, applied in the order in which they come;
3. an EKS access entry for each IAM role in `access_groups`, with its groups.

Teams apply their own jobs: `job_manifests` of an `ElasticJob` for which `check_job` (`rules/jobs.py`) finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import yaml

__all__ = ["Manifest", "document", "to_yaml"]

Manifest: TypeAlias = dict[str, Any]
"""One Kubernetes object: dicts, lists, strings and numbers, which jsii and YAML support."""


class _Dumper(yaml.SafeDumper):
    """YAML as people write it: lists indented below their key, multi-line strings as blocks, no aliases."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def document(data: object) -> str:
    """One YAML document with keys in insertion order, so the same input gives the same bytes."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def to_yaml(manifests: Iterable[Manifest]) -> str:
    """The objects as a stream of documents, for `kubectl apply -f -`."""
    return "".join(f"---\n{document(manifest)}" for manifest in manifests)
