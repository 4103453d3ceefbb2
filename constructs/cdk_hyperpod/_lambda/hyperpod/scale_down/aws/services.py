"""What the function reaches: the clients of AWS, its clock and its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from ...common import api
from ...common.text import one_line
from ..model.cluster import Cluster
from . import clients

READ_PATIENCE = timedelta(minutes=2)
"""How long a read is repeated, because AWS throttles or a permission is on its way. The function has ten minutes."""

_Found = TypeVar("_Found")


@dataclass(kw_only=True)
class Services:
    """Clients are made when they are needed: most polls need no CloudFormation, and only draining needs S3 and Lambda
    (`functions`)."""

    sagemaker: Callable[[], clients.Client]
    cloudformation: Callable[[], clients.CloudFormation]
    s3: Callable[[], clients.S3]
    functions: Callable[[], clients.Lambda]
    now: Callable[[], datetime]
    sleep: Callable[[float], None]
    """Takes seconds."""
    write_line: Callable[[str], None]

    def log(self, text: str) -> None:
        """One line in the log."""
        self.write_line(one_line(text))

    def read_cluster(self, name: str, *, tags: bool) -> Cluster | None:
        """The live cluster. None: no cluster has that name. Raises api.CALL_ERRORS."""
        return clients.read_live(self.sagemaker(), name, tags=tags)

    def read_stack(self, stack: str) -> Mapping[str, Any]:
        """The stack as DescribeStacks shows it. Raises api.CALL_ERRORS."""
        found: Mapping[str, Any] = self.cloudformation().describe_stacks(StackName=stack)["Stacks"][0]
        return found

    def read_events(self, stack: str) -> Iterator[Mapping[str, Any]]:
        """The stack's events, newest first; pages are read when they are needed. Raises api.CALL_ERRORS."""
        return clients.read_events(self.cloudformation(), stack)

    def read_template(self, stack: str) -> object:
        """The stack's template. Raises api.CALL_ERRORS."""
        return self.cloudformation().get_template(StackName=stack)["TemplateBody"]

    def retry(self, read: Callable[[], _Found], until: Callable[[Exception], datetime]) -> _Found:
        """What `read` finds, repeated with growing pauses. `until`: the end of the time for reads that fail with this error."""
        return api.again(read, until, now=self.now, sleep=self.sleep, log=self.log)

    def read_patiently(self, read: Callable[[], _Found], *, began: datetime) -> _Found:
        """The same for READ_PATIENCE, and for at most twice that after the request began. Every error is repeated."""
        until = min(self.now() + READ_PATIENCE, began + 2 * READ_PATIENCE)
        return self.retry(read, lambda _: until)

    def wait_until(self, time: datetime) -> None:
        """Returns at once if the time is over."""
        self.sleep(max(0.0, (time - self.now()).total_seconds()))
