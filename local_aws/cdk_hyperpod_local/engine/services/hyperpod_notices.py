"""Sends what happens in HyperPod to EventBridge, and the faults of its nodes to the clusters' log groups."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.seam import events, stores
from cdk_hyperpod_local.hyperpod import BusEvent, HyperPod, LogRecord

_SECONDS = 0.2


def start(hyperpod: Callable[[], HyperPod]) -> None:
    """`hyperpod`: returns the current one, because a reset creates another. Time passes in it without any call."""
    threading.Thread(target=_run, args=(hyperpod,), name="hyperpod-notices", daemon=True).start()


def _run(hyperpod: Callable[[], HyperPod]) -> None:
    while True:
        for notice in hyperpod().take_notices():
            try:
                _send(notice)
            except Exception:  # one that cannot be delivered must not stop the others
                logging.getLogger(__name__).exception("notices")
        time.sleep(_SECONDS)


def _send(notice: BusEvent | LogRecord) -> None:
    if isinstance(notice, LogRecord):
        with seam.scope(notice.account, notice.region):
            stores.write_log(notice.group, notice.stream, notice.at_ms, notice.message)
        return
    events.send(
        account=notice.account,
        region=notice.region,
        source="aws.sagemaker",
        detail_type=notice.detail_type,
        resource=notice.cluster_arn,
        detail=notice.detail,
    )
