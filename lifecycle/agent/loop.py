"""The agent's loop: read the requests and Slurm, decide, act, and write the status."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from drain_protocol import (
    MAX_REQUEST_BYTES,
    WRITERS,
    NodeRequest,
    NodeStatus,
    RequestError,
    Status,
    StatusJob,
    parse_request,
    request_key,
    status_key,
)
from lib import last_line, log, run

from .backup_results import BackupResults
from .commands import NO_REQUEUE, Act
from .decide import decide_node
from .decision import Decision
from .release import release_expired, release_nodes
from .s3 import Bucket, Object, S3Error
from .slurm import SlurmError
from .slurm_state import SlurmState, read_slurm
from .status import SHORTER, busy_instances, fitting, reported_jobs

UNKNOWN = {
    "operator": "releases no nodes until the operator's request is written anew, by `cdk-hyperpod drain` or `undrain`",
    "deployment": "releases no nodes until the deployment's request is written anew, by the next deployment",
}
"""Added to the status if an agent started when a request was broken, and so does not know the request before."""
POLL_S = float(os.environ.get("DRAIN_POLL_S", "10"))
"""Between two looks: two requests to S3 each, so 12 a minute, and one for the status."""
BEAT_S = 60
"""The status is written when it changes, and this often."""
ACT_S = 30
"""A look acts no longer than this before it writes the status. An agent that writes none for three minutes counts as silent."""
UNREAD_S = 600
"""An agent that could not read all requests for this long since it started releases what is older than any lease."""


@dataclass(frozen=True)
class LookResult:
    """What the status says after a look."""

    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    busy: Mapping[str, tuple[StatusJob, ...]] = field(default_factory=dict)
    queue: int | None = None
    did_all: bool = False
    """Something was done, and all of it went well."""


class Agent:
    """What one process keeps between two looks. It may be lost: all of it can be read again."""

    def __init__(self, settings: Mapping[str, Any], bucket: Bucket) -> None:
        self.settings = settings
        self.bucket = bucket
        self.etags: dict[str, str] = dict.fromkeys(WRITERS, "")
        self.ids: dict[str, str] = {}
        self.node_requests: dict[str, tuple[NodeRequest, ...] | None] = dict.fromkeys(WRITERS)
        """None: this writer's request was never read, so nothing that it may hold is released."""
        self.refused: dict[str, str] = {}
        self.unread: dict[str, str] = {}
        """Why a request could not be read the last time."""
        self.written: Status | None = None
        self.written_at = -math.inf
        self.troubles: dict[str, str] = {}
        self.began = time.monotonic()
        self.ended: frozenset[str] = frozenset()
        """Jobs that the last look has requeued or cancelled."""
        self.stuck: frozenset[str] = frozenset()
        """Those of them that still existed at the next look. Each was logged once."""
        self.backups = BackupResults()

    def look(self) -> bool:
        """Read, decide, act, and write the status. True: something was done, so an early look will see more."""
        self._read_requests()
        now = self.bucket.now()
        result, problem = LookResult(), ""
        try:
            result = self._decide_and_act(self._live_requests(now), now)
        except SlurmError as error:
            problem = str(error)
        self._log_problem("Slurm", problem)
        self._write_status(now, result, problem)
        return result.did_all

    def _live_requests(self, now: float) -> dict[str, list[NodeRequest]]:
        """By instance, the requests whose lease has not expired."""
        found: dict[str, list[NodeRequest]] = {}
        for writer in WRITERS:
            for node_request in self.node_requests[writer] or ():
                if node_request.expires > now:
                    found.setdefault(node_request.instance, []).append(node_request)
        return found

    def _decide_and_act(self, requests: Mapping[str, list[NodeRequest]], now: float) -> LookResult:
        """Raises SlurmError, before anything is done."""
        knows_all = None not in self.node_requests.values()
        slurm = read_slurm(now)._replace(releases_nodes=knows_all)
        decisions = {
            instance: decide_node(node_requests, slurm, self.settings) for instance, node_requests in requests.items()
        }
        keep = frozenset(instance for instance, decision in decisions.items() if decision.holds)
        acts = [*_without_duplicates(decisions.values()), *self._releases(keep, slurm, knows_all)]
        failed = self._find_stuck(acts)
        self._do_all(acts, failed)
        nodes = {
            instance: self._node_status(requests[instance], decision, slurm, failed)
            for instance, decision in decisions.items()
        }
        self.backups.update(nodes, slurm)
        if not self._backup_settings().get("hook"):
            self.backups.add_to(nodes)
        return LookResult(nodes, busy_instances(slurm), slurm.queue, did_all=bool(acts) and not failed)

    def _releases(self, keep: frozenset[str], slurm: SlurmState, knows_all: bool) -> tuple[Act, ...]:
        if knows_all:
            return release_nodes(keep, slurm)
        if time.monotonic() - self.began > UNREAD_S:
            return release_expired(keep, slurm)
        return ()

    def _do_all(self, acts: Sequence[Act], failed: dict[str, str]) -> None:
        """Act, and add to `failed`, by instance, what went wrong."""
        began = time.monotonic()
        for act in acts:
            if time.monotonic() - began > ACT_S:
                return  # the next look sees what is left to do
            problem = self._do(act)
            if act.ends:
                self.ended |= {act.ends}
            if problem and act.ends not in self.stuck:
                failed[act.instance] = problem

    def _find_stuck(self, acts: Sequence[Act]) -> dict[str, str]:
        """By instance, the job that the last look ended and that still exists. Each such job is logged once."""
        ends = frozenset(act.ends for act in acts if act.ends)
        stuck = self.ended & ends
        for job in sorted(stuck - self.stuck):
            log(
                "WARNING",
                f"job {job} still exists after it was requeued or cancelled; the agent tries again at each look",
            )
        self.stuck = (self.stuck & ends) | stuck
        self.ended = self.ended & ends
        message = "still exists after it was requeued or cancelled"
        return {act.instance: f"job {act.ends} {message}" for act in acts if act.ends in self.stuck}

    def _read_requests(self) -> None:
        for writer in WRITERS:
            before = self.bucket.now()
            try:
                key = request_key(self.settings["cluster"], writer)
                found = self.bucket.get(key, self.etags[writer], MAX_REQUEST_BYTES)
            except S3Error as error:
                self.unread[writer] = str(error)
                self._log_problem(writer, str(error))
                continue
            self.unread.pop(writer, None)
            self.refused.pop(writer, None)
            # None: the object is what was understood last.
            if found is not None:
                self._parse(writer, found, before)
            self._log_problem(writer, self.refused.get(writer, ""))

    def _parse(self, writer: str, found: Object, before: float) -> None:
        """Understand the writer's object. `before`: the time before it was read."""
        if found.content is None:
            self.ids.pop(writer, None)
            self.etags[writer], self.node_requests[writer] = "", ()
            return
        # One response may set the clock back for a while. That must not put the request's times too far ahead.
        now = max(before, self.bucket.now())
        try:
            request = parse_request(writer, found.content, now)
        except RequestError as error:
            # The request before it counts until its lease expires: a broken request ends no drain.
            self.refused[writer] = f"the request of the {writer} {error}"
            return
        self.ids[writer], self.node_requests[writer] = request.id, request.nodes
        # Only for a valid request: an invalid one may have been cut off, and is read again.
        self.etags[writer] = found.etag

    def _log_problem(self, about: str, problem: str) -> None:
        """Log what is new."""
        if self.troubles.get(about, "") != problem:
            log("WARNING" if problem else "INFO", problem or f"{about}: works again")
            self.troubles[about] = problem

    def _do(self, act: Act) -> str:
        """What went wrong. Empty: nothing."""
        command = act.command
        done = run(*command, stdin=act.stdin, timeout_s=60)
        if act.otherwise and _cannot_be_requeued(done):
            command = act.otherwise
            done = run(*command, timeout_s=60)
        error = ""
        if done.returncode != 0:
            error = f"`{' '.join(command[:3])}` failed: {last_line(done.stdout)}"
        if act.ends in self.stuck:
            return error  # the log has a line of this job
        if error:
            log("WARNING", f"{act.why}: {error}")
        else:
            log("INFO", f"{act.why}: {' '.join(command[:2])}")
        return error

    @staticmethod
    def _node_status(
        node_requests: Sequence[NodeRequest], one: Decision, slurm: SlurmState, failed: Mapping[str, str]
    ) -> NodeStatus:
        instance = node_requests[0].instance
        names = [node.name for node in slurm.nodes_at.get(slurm.instances.get(instance, ""), ())]
        name = names[0] if len(names) == 1 else ""
        return NodeStatus(
            state=one.state,
            message="; ".join(filter(None, (one.message, failed.get(instance, "")))),
            requests={node_request.writer: node_request.request_id for node_request in node_requests},
            saved=one.saved,
            waived=one.waived,
            absent=one.absent,
            address=node_requests[0].address,
            host=name,
            jobs=reported_jobs(slurm.jobs.get(name, ())[: SHORTER[0][0]]),
        )

    def _backup_settings(self) -> Mapping[str, Any]:
        """Empty: nothing is saved."""
        return self.settings.get("backup") or {}

    def _write_status(
        self,
        now: float,
        result: LookResult,
        problem: str,
    ) -> None:
        backup = self._backup_settings()
        unknown = [UNKNOWN[writer] for writer in self.refused if self.node_requests[writer] is None]
        # Without Slurm nothing new is known of the nodes: their last status stays, beside the problem.
        nodes = self.written.nodes if problem and self.written else result.nodes
        status = Status(
            requests=dict(self.ids),
            refused=dict(self.refused),
            problem="; ".join(filter(None, (problem, *self.unread.values(), *unknown))),
            backup=backup.get("hook") or backup.get("to"),
            nodes=nodes,
            left_out=self.backups.files_left_out(),
        )
        if status == self.written and time.monotonic() - self.written_at < BEAT_S:
            return
        # Busy nodes and the queue change all the time. They are written with the status, but cause no write by themselves.
        content = fitting(replace(status, beat=round(now), busy=result.busy, queue=result.queue))
        try:
            self.bucket.put(status_key(self.settings["cluster"]), content)
            self.written, self.written_at = status, time.monotonic()
            self._log_problem("status", "")
        except S3Error as error:
            self._log_problem("status", str(error))


def _cannot_be_requeued(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode != 0 and any(words in done.stdout for words in NO_REQUEUE)


def _without_duplicates(decisions: Iterable[Decision]) -> list[Act]:
    """The acts of all decisions. A job on several nodes is ended once."""
    by_command = {}
    for decision in decisions:
        for act in decision.acts:
            by_command[act.command] = act
    return list(by_command.values())


def main(settings_file: str) -> None:
    """Look again and again, until systemd ends the process."""
    settings = json.loads(Path(settings_file).read_text("utf-8"))
    agent = Agent(settings, Bucket(settings["bucket"], settings["region"]))
    log("INFO", f"drains nodes of the cluster {settings['cluster']}, as requested in s3://{settings['bucket']}")
    while True:
        quick = agent.look()
        time.sleep(min(1.0, POLL_S) if quick else POLL_S)
