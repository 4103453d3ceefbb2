"""Events that are none of this function's."""

from __future__ import annotations

import pytest

from cdk_hyperpod._lambda.hyperpod.scale_down.model.properties import PREPARE, MalformedError
from cdk_hyperpod._lambda.hyperpod.scale_down.poll.request import read_event


def test_event_of_another_request() -> None:
    with pytest.raises(MalformedError, match='RequestType: must be Create, Update or Delete, got "Import"'):
        read_event({"ResourceType": PREPARE, "RequestType": "Import"})


def test_event_of_another_type() -> None:
    with pytest.raises(
        MalformedError, match=r"ResourceType: must be Custom::HyperPodScaleDown or Custom::HyperPodGroup"
    ):
        read_event({"ResourceType": "Custom::Other", "RequestType": "Create"})
