"""The kinds that HyperPod installs with autoscaling: the parts of Karpenter's that its documentation shows.

Karpenter itself does not run here.
"""

from __future__ import annotations

from cdk_hyperpod_local.engine.kubernetes import KubernetesApi, custom_kinds
from cdk_hyperpod_local.engine.kubernetes.custom_kinds import TEXT, TEXTS, WHOLE, an_object, definition

_TAINT = an_object(("key", "effect"), key=TEXT, value=TEXT, effect=TEXT)
_REQUIREMENT = an_object(
    ("key", "operator"),
    key=TEXT,
    operator={"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]},
    values=TEXTS,
    minValues=WHOLE,
)
_TEMPLATE = an_object(
    ("nodeClassRef", "requirements"),
    nodeClassRef=an_object(("group", "kind", "name"), group=TEXT, kind=TEXT, name=TEXT),
    requirements={"type": "array", "items": _REQUIREMENT},
    expireAfter={"type": "string", "pattern": "^(([0-9]+(s|m|h))+|Never)$"},
    terminationGracePeriod={"type": "string", "pattern": "^([0-9]+(s|m|h))+$"},
    taints={"type": "array", "items": _TAINT},
    startupTaints={"type": "array", "items": _TAINT},
)
_DISRUPTION = an_object(
    ("consolidateAfter",),
    consolidationPolicy={"type": "string", "enum": ["WhenEmpty", "WhenEmptyOrUnderutilized"]},
    consolidateAfter={"type": "string", "pattern": "^(([0-9]+(s|m|h))+|Never)$"},
    budgets={"type": "array", "items": an_object(nodes=TEXT, schedule=TEXT, duration=TEXT, reasons=TEXTS)},
)
_LABELS = {"type": "object", "additionalProperties": TEXT}
_AMOUNTS = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}
KINDS = (
    definition(
        "karpenter.sagemaker.amazonaws.com",
        "HyperpodNodeClass",
        "hyperpodnodeclasses",
        an_object(("instanceGroups",), instanceGroups={**TEXTS, "minItems": 1}),
        namespaced=False,
    ),
    definition(
        "karpenter.sh",
        "NodePool",
        "nodepools",
        an_object(
            ("template",),
            template=an_object(("spec",), metadata=an_object(labels=_LABELS, annotations=_LABELS), spec=_TEMPLATE),
            disruption=_DISRUPTION,
            limits=_AMOUNTS,
            weight=WHOLE,
        ),
        namespaced=False,
    ),
)


def install(api: KubernetesApi) -> None:
    custom_kinds.install(api, KINDS)
