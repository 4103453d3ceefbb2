"""CloudWatch evaluates every alarm once a minute, on the functions' clock, whether data arrive or not.

It also gets the metrics that AWS's own services write, as far as our alarms look at them: visible messages of queues, and
free storage of file systems.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from cdk_hyperpod_local.alarms import Alarm, evaluate
from cdk_hyperpod_local.alarms.evaluation import MINUTE, MORE_PERIODS
from cdk_hyperpod_local.engine.clock import FunctionClock
from cdk_hyperpod_local.engine.seam import alarms as seam
from cdk_hyperpod_local.engine.seam import queues

Json = Any
Storage = Callable[[], Iterator[tuple[str, str, str, float, float]]]
"""Account, Region, id, and the free and used bytes of every file system."""


class Alarms:
    def __init__(self, clock: FunctionClock, storage: Storage) -> None:
        self._clock = clock
        self._storage = storage

    def start(self) -> None:
        seam.install(self._clock.now)
        threading.Thread(target=self._run, name="alarms", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                self._write_metrics()
                self._evaluate()
            except Exception:  # the next minute may be better, and nothing else would say what is wrong
                logging.getLogger(__name__).exception("alarms")
            time.sleep(MINUTE / self._clock.speed)

    def _write_metrics(self) -> None:
        for account, region, name, visible in queues.queues():
            seam.put(account, region, "AWS/SQS", "ApproximateNumberOfMessagesVisible", visible, QueueName=name)
        for account, region, name, free, used in self._storage():
            seam.put(account, region, "AWS/FSx", "FreeDataStorageCapacity", free, FileSystemId=name)
            seam.put(account, region, "AWS/FSx", "PhysicalDiskUsage", used, FileSystemId=name)

    def _evaluate(self) -> None:
        now = self._clock.now()
        for account, region, record in seam.alarms():
            try:
                alarm = Alarm.of(record)
                since = now - alarm.period * (alarm.evaluation_periods + MORE_PERIODS) - MINUTE
                state = evaluate(alarm, seam.metrics_of(account, region, alarm, since), now)
            except (KeyError, ValueError):  # anomaly detection, or a statistic that is not calculated
                continue
            if state is not None:
                wanted = f"{alarm.datapoints_to_alarm} of {alarm.evaluation_periods} periods of {alarm.period} s"
                reason = f"{wanted} with {alarm.comparison} {alarm.threshold:g}: {state}"
                seam.set_state(account, region, record, state, reason)
