"""The kinds that HyperPod brings with its autoscaling: the parts of Karpenter's that its documentation shows.

The schemas are small and strict, so that a misspelt field is seen; Karpenter itself does not run here.
"""

from __future__ import annotations

from typing import Any

from local_aws.engine.kubernetes import KubernetesApi

Json = Any
_TEXT: Json = {"type": "string"}
_TEXTS: Json = {"type": "array", "items": _TEXT}


def _object(required: tuple[str, ...] = (), **properties: Json) -> Json:
    found: Json = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def _kind(group: str, name: str, plural: str, spec: Json) -> Json:
    schema = _object(("spec",), apiVersion=_TEXT, kind=_TEXT, metadata={"type": "object"}, spec=spec)
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": name, "plural": plural, "singular": name.lower(), "listKind": f"{name}List"},
            "scope": "Cluster",
            "versions": [version],
        },
    }


_TAINT = _object(("key", "effect"), key=_TEXT, value=_TEXT, effect=_TEXT)
_REQUIREMENT = _object(
    ("key", "operator"),
    key=_TEXT,
    operator={"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]},
    values=_TEXTS,
    minValues={"type": "integer"},
)
_TEMPLATE = _object(
    ("nodeClassRef", "requirements"),
    nodeClassRef=_object(("group", "kind", "name"), group=_TEXT, kind=_TEXT, name=_TEXT),
    requirements={"type": "array", "items": _REQUIREMENT},
    expireAfter={"type": "string", "pattern": "^(([0-9]+(s|m|h))+|Never)$"},
    terminationGracePeriod={"type": "string", "pattern": "^([0-9]+(s|m|h))+$"},
    taints={"type": "array", "items": _TAINT},
    startupTaints={"type": "array", "items": _TAINT},
)
_DISRUPTION = _object(
    ("consolidateAfter",),
    consolidationPolicy={"type": "string", "enum": ["WhenEmpty", "WhenEmptyOrUnderutilized"]},
    consolidateAfter={"type": "string", "pattern": "^(([0-9]+(s|m|h))+|Never)$"},
    budgets={"type": "array", "items": _object(nodes=_TEXT, schedule=_TEXT, duration=_TEXT, reasons=_TEXTS)},
)
_LABELS: Json = {"type": "object", "additionalProperties": _TEXT}
_AMOUNTS: Json = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}
KINDS = (
    _kind(
        "karpenter.sagemaker.amazonaws.com",
        "HyperpodNodeClass",
        "hyperpodnodeclasses",
        _object(("instanceGroups",), instanceGroups={**_TEXTS, "minItems": 1}),
    ),
    _kind(
        "karpenter.sh",
        "NodePool",
        "nodepools",
        _object(
            ("template",),
            template=_object(("spec",), metadata=_object(labels=_LABELS, annotations=_LABELS), spec=_TEMPLATE),
            disruption=_DISRUPTION,
            limits=_AMOUNTS,
            weight={"type": "integer"},
        ),
    ),
)


def install(api: KubernetesApi) -> None:
    """What is there stays as it is."""
    for kind in KINDS:
        status, answer = api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind)
        if status not in (201, 409):
            raise RuntimeError(f"{kind['metadata']['name']}: {answer}")
