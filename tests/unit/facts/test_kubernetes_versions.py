"""The table of Kubernetes versions agrees with itself, with the default, and with the kubectl that is installed."""

from __future__ import annotations

from pathlib import Path

from cdk_hyperpod.config.eks import DEFAULT_KUBERNETES_VERSION
from cdk_hyperpod.eks import kubectl as kubectl_module
from cdk_hyperpod.facts.kubernetes_versions import HYPERPOD, KUBECTL, NEW_CLUSTERS, minor


def test_the_default_is_taken_by_all_three() -> None:
    assert DEFAULT_KUBERNETES_VERSION in set(NEW_CLUSTERS) & set(HYPERPOD) & set(KUBECTL)
    assert NEW_CLUSTERS == ("1.32", "1.33", "1.34", "1.35")
    assert [*HYPERPOD] == sorted(HYPERPOD, key=minor)


def test_kubectl_supports_one_version_up_and_down() -> None:
    (kubectl,) = (
        minor(each) for each in KUBECTL if f"v{minor(each)}" in Path(kubectl_module.__file__).read_text("utf-8")
    )
    assert [minor(each) for each in KUBECTL] == [kubectl - 1, kubectl, kubectl + 1]
