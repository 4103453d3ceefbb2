"""Each Description of AWS's page is classified, whatever stands in its places."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdk_hyperpod._lambda.hyperpod.alerts.descriptions import PROGRESS, REFERENCE, SPECIAL, meaning
from cdk_hyperpod._lambda.hyperpod.alerts.kinds import KINDS

PAGE = Path(__file__).parents[1] / "local_aws" / "hyperpod" / "cluster_events.txt"
PUBLISHED = [line for line in PAGE.read_text("utf-8").splitlines() if not line.startswith("#")]
VALUES = {"operation": "update", "status": "Started", "cluster-name": "failed", "instance-id": "i-0123456789abcdef0"}
"""A cluster may have any name."""


def filled(description: str) -> str:
    return re.sub("<([a-z-]+)>", lambda place: VALUES.get(place[1], "p5"), description)


def test_the_page_has_95_and_each_is_in_the_table() -> None:
    assert len(PUBLISHED) == 95
    assert {*PUBLISHED} == {*REFERENCE}


@pytest.mark.parametrize("spelled", ["IG", "InstanceGroup", "Instance Group"])
def test_each_is_found_by_its_own_row(spelled: str) -> None:
    # The page writes IG, and its samples write InstanceGroup.
    texts = [*REFERENCE, *SPECIAL]
    for text in PUBLISHED:
        found = meaning(filled(text).replace("IG ", f"{spelled} "))
        assert found is not None, text
        assert (texts[found.rank], found.kind) == (text, REFERENCE[text])


def test_a_fault_s_row_is_a_fault() -> None:
    words = re.compile(r"fail|skipped|drift detected", re.IGNORECASE)
    faults = {text for text, kind in REFERENCE.items() if kind != PROGRESS}
    (replacement,) = {text for text in PUBLISHED if words.search(text)} ^ faults
    assert replacement.startswith("Instance <instance-id> is starting as part of instance replacement")


def test_each_kind_has_a_headline() -> None:
    assert {*REFERENCE.values(), *SPECIAL.values()} - {PROGRESS} <= {*KINDS}
    for name, kind in KINDS.items():
        assert (kind.one or kind.whole) and {*kind.explained_by} <= {*KINDS}, name


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Instance creation in Cluster sample-cluster and InstanceGroup p5Inst failed", "launch"),
        ("Instance lifecycle script execution for EC2InstanceId i-0391f86fa0fe0d465 has Started", PROGRESS),
        ("Instance lifecycle script execution for EC2 Instance i-0391f86fa0fe0d465 has Failed", "lifecycle-script"),
        (
            "Instance lifecycle script execution for EC2 Instance i-1 has Failed. To view lifecycle script logs, visit log group /a/b.",
            "lifecycle-script",
        ),
        ("Instance deletion i-0391f86fa0fe0d465 in Cluster train and IG p5 failed", "termination"),
        ("Rollback initiated", "minimum"),
        ("Minimum capacity reached", PROGRESS),
    ],
)
def test_samples_and_words_that_decide(text: str, kind: str) -> None:
    found = meaning(text)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize("text", ["", "Something new failed", "Instance", "Cluster  failed", "failed " * 200])
def test_a_description_that_aws_has_not_published_is_unknown(text: str) -> None:
    assert meaning(text) is None
