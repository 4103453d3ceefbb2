"""The agent's loop: read what is wanted and what there is, decide, act, and write the status."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
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

from .commands import NO_REQUEUE, Act
from .decide import decide_node
from .decision import Decision
from .release import release_expired, release_nodes
from .s3 import Bucket, S3Error
from .slurm import SAVED, UNSAID, SlurmError, left_out
from .slurm_state import SlurmState, read_slurm
from .status import SHORTER, busy_instances, fitting, told_jobs

VERSION = 3
"""Of the agent, in its status."""
UNKNOWN = {
    "operator": "gives nothing back until the operator's request is written anew, by `cdk-hyperpod drain` or `undrain`",
    "deployment": "gives nothing back until the deployment's request is written anew, by the next deployment",
}
"""Of a broken request, where an agent that started after it cannot know what was wanted before."""
POLL_S = float(os.environ.get("DRAIN_POLL_S", "10"))
"""Between two looks: two requests to S3 each, so 12 a minute, and one for the status."""
BEAT_S = 60
"""The status is written when it changes, and this often."""
ACT_S = 30
"""A look acts no longer than this before it tells: an agent that says nothing for three minutes is taken for dead."""
MOST_KEPT = 1000
"""Deleted nodes of which it is known what was left out."""
UNREAD_S = 600
"""An agent that could read no request for so long since it started gives back what is older than any lease."""


class Agent:
    """What one process knows between two looks: what it has read of S3, which it may read again."""

    def __init__(self, settings: Mapping[str, Any], bucket: Bucket) -> None:
        self.settings = settings
        self.bucket = bucket
        self.etags: dict[str, str] = dict.fromkeys(WRITERS, "")
        self.ids: dict[str, str] = {}
        self.node_requests: dict[str, tuple[NodeRequest, ...] | None] = dict.fromkeys(WRITERS)
        """None: nobody knows what this writer wants, so nothing that may be its own is given back."""
        self.refused: dict[str, str] = {}
        self.unread: dict[str, str] = {}
        """Why a request could not be read the last time."""
        self.written: Status | None = None
        self.written_at = -math.inf
        self.troubles: dict[str, str] = {}
        self.began = time.monotonic()
        self.ended: frozenset[str] = frozenset()
        """Jobs that the last look has ended, as far as its commands tell."""
        self.stuck: frozenset[str] = frozenset()
        """Those of them that were there all the same, of which the log has a line."""
        self.backups: dict[str, tuple[int, str]] = {}
        """Instance -> how many files are not in its backup, and all that is not. Slurm forgets a job after some minutes; then the
        drain's reason has the count, and the manifest has it all."""

    def look(self) -> bool:
        """Read, decide, act, tell. Whether anything was done, so that a look soon sees more."""
        self._read_requests()
        now = self.bucket.now()
        wanted: dict[str, list[NodeRequest]] = {}
        for writer in WRITERS:
            for node_request in self.node_requests[writer] or ():
                if node_request.expires > now:
                    wanted.setdefault(node_request.instance, []).append(node_request)
        done = False
        nodes: dict[str, NodeStatus] = {}
        busy: dict[str, tuple[StatusJob, ...]] = {}
        problem = ""
        known = None not in self.node_requests.values()
        try:
            slurm = read_slurm(now)._replace(releases_nodes=known)
            decisions = {
                instance: decide_node(node_requests, slurm, self.settings) for instance, node_requests in wanted.items()
            }
            # A job on several nodes is ended once.
            acts = list({act.command: act for decision in decisions.values() for act in decision.acts}.values())
            keep = frozenset(instance for instance, decision in decisions.items() if decision.holds)
            if known:
                acts += release_nodes(keep, slurm)
            elif time.monotonic() - self.began > UNREAD_S:
                acts += release_expired(keep, slurm)
            failed = self._find_stuck(acts)
            began = time.monotonic()
            for act in acts:
                if time.monotonic() - began > ACT_S:
                    break  # the next look sees what is left to do
                said = self._do(act)
                self.ended |= {act.ends} - {""}
                if said and act.ends not in self.stuck:
                    failed[act.instance] = said
            done = bool(acts) and not failed
            nodes = {instance: self._tell(wanted[instance], one, slurm, failed) for instance, one in decisions.items()}
            self._add_what_is_not_saved(nodes, slurm)
            busy = busy_instances(slurm)
        except SlurmError as error:
            problem = str(error)
        self._say("Slurm", problem)
        self._write_status(now, nodes, busy, problem)
        return done

    def _find_stuck(self, acts: Sequence[Act]) -> dict[str, str]:
        """By instance, which job is still there that the last look ended. The log says so of each job once."""
        ends = frozenset(act.ends for act in acts if act.ends)
        stuck = self.ended & ends
        for job in sorted(stuck - self.stuck):
            log(
                "WARNING",
                f"job {job} is still there after it was requeued or cancelled; it is tried again at each look",
            )
        self.stuck = (self.stuck & ends) | stuck
        self.ended = self.ended & ends
        said = "is still there after it was requeued or cancelled"
        return {act.instance: f"job {act.ends} {said}" for act in acts if act.ends in self.stuck}

    def _read_requests(self) -> None:
        for writer in WRITERS:
            key = request_key(self.settings["cluster"], writer)
            before = self.bucket.now()
            try:
                found = self.bucket.get(key, self.etags[writer], MAX_REQUEST_BYTES)
            except S3Error as error:
                self.unread[writer] = str(error)
                self._say(writer, str(error))
                continue
            self.unread.pop(writer, None)
            self.refused.pop(writer, None)
            if found is None:
                pass  # what was understood last is there again, or still
            elif found.content is None:
                self.ids.pop(writer, None)
                self.etags[writer], self.node_requests[writer] = "", ()
            else:
                try:
                    # An answer that sets the clock back, until others say so too, makes no time too far ahead.
                    now = max(before, self.bucket.now())
                    request = parse_request(writer, found.content, now)
                    self.ids[writer], self.node_requests[writer] = request.id, request.nodes
                    # Only of what was understood: it may have been read in part, and is read again.
                    self.etags[writer] = found.etag
                except RequestError as error:
                    # What it wanted before stands until its lease is over: a broken request ends no drain.
                    self.refused[writer] = f"the request of the {writer} {error}"
            self._say(writer, self.refused.get(writer, ""))

    def _say(self, about: str, problem: str) -> None:
        """Log what is new."""
        if self.troubles.get(about, "") != problem:
            log("WARNING" if problem else "INFO", problem or f"{about}: works again")
            self.troubles[about] = problem

    def _do(self, act: Act) -> str:
        """What went wrong, or nothing."""
        done = run(*act.command, stdin=act.stdin, timeout_s=60)
        command = act.command
        if done.returncode != 0 and act.otherwise and any(words in done.stdout for words in NO_REQUEUE):
            command = act.otherwise
            done = run(*command, timeout_s=60)
        said = "" if done.returncode == 0 else f"`{' '.join(command[:3])}` failed: {last_line(done.stdout)}"
        if act.ends in self.stuck:
            return said
        log("WARNING" if said else "INFO", f"{act.why}: {said or ' '.join(command[:2])}")
        return said

    @staticmethod
    def _tell(
        node_requests: Sequence[NodeRequest], one: Decision, slurm: SlurmState, failed: Mapping[str, str]
    ) -> NodeStatus:
        instance = node_requests[0].instance
        names = [node.name for node in slurm.at.get(slurm.instances.get(instance, ""), ())]
        name = names[0] if len(names) == 1 else ""
        return NodeStatus(
            state=one.state,
            message="; ".join(filter(None, (one.message, failed.get(instance, "")))),
            requests={node_request.writer: node_request.request_id for node_request in node_requests},
            saved=one.saved,
            absent=one.absent,
            address=node_requests[0].address,
            host=name,
            jobs=told_jobs(slurm.jobs.get(name, ())[: SHORTER[0][0]]),
        )

    def _add_what_is_not_saved(self, nodes: dict[str, NodeStatus], slurm: SlurmState) -> None:
        """Say of what is saved what is not in it; and keep it of nodes that are deleted, for who deleted them."""
        ended = [(int(job.id), name, job) for name, jobs in slurm.backups.items() for job in jobs]
        for _, name, job in sorted(each for each in ended if each[2].state == "COMPLETED"):
            found = SAVED.fullmatch(job.said)
            self.backups[name.split(":")[1]] = left_out(job.said), (found[1] or "") if found else UNSAID
        for instance, told in nodes.items():
            drain = slurm.nodes[told.host].our_drain if told.saved else None
            count = drain.files_left_out if drain else 0
            if count:
                note = f"{count} file{'' if count == 1 else 's'} left out; {UNSAID}"
                self.backups.setdefault(instance, (count, note))
        for instance in [each for each in self.backups if each not in nodes and each in slurm.instances]:
            del self.backups[instance]  # it went back to work
        for instance in list(self.backups)[:-MOST_KEPT]:
            del self.backups[instance]
        if (self.settings.get("backup") or {}).get("hook"):
            return
        for instance, told in nodes.items():
            if told.saved:
                _, note = self.backups.get(instance, (0, UNSAID))
                nodes[instance] = replace(told, message="; ".join(filter(None, (told.message, note))))

    def _left_out(self) -> dict[str, int]:
        """How many files are not in the backups of nodes, also of those that are deleted."""
        return {instance: count for instance, (count, _) in self.backups.items() if count}

    def _write_status(
        self,
        now: float,
        nodes: Mapping[str, NodeStatus],
        busy: Mapping[str, tuple[StatusJob, ...]],
        problem: str,
    ) -> None:
        backup = self.settings.get("backup") or {}
        unknown = [UNKNOWN[writer] for writer in self.refused if self.node_requests[writer] is None]
        # Without Slurm there is nothing new to say of nodes: what was said stays, and the problem beside it.
        stays = self.written.nodes if problem and self.written else nodes
        status = Status(
            agent=VERSION,
            requests=dict(self.ids),
            refused=dict(self.refused),
            problem="; ".join(filter(None, (problem, *self.unread.values(), *unknown))),
            backup=backup.get("hook") or backup.get("to"),
            nodes=stays,
            left_out=self._left_out(),
        )
        if status == self.written and time.monotonic() - self.written_at < BEAT_S:
            return
        # Who is busy changes all the time, and is told as often as the status is written anyway.
        content = fitting(replace(status, beat=round(now), busy=busy))
        try:
            self.bucket.put(status_key(self.settings["cluster"]), content)
            self.written, self.written_at = status, time.monotonic()
            self._say("status", "")
        except S3Error as error:
            self._say("status", str(error))


def main(settings_file: str) -> None:
    """Look until somebody ends it."""
    settings = json.loads(Path(settings_file).read_text("utf-8"))
    agent = Agent(settings, Bucket(settings["bucket"], settings["region"]))
    log("INFO", f"drains nodes of {settings['cluster']}, as s3://{settings['bucket']} asks")
    while True:
        quick = agent.look()
        time.sleep(min(1.0, POLL_S) if quick else POLL_S)
