"""The drain agent of a Slurm cluster, as docs/adr/0014 has it: holds what requests name, and reports."""

from __future__ import annotations

from typing import Any

from cdk_hyperpod._lambda.hyperpod.kernel import drain_protocol as protocol

from .world import NAME, Node, World

Json = Any


class Agent:
    """Looks every few seconds while it lives. A node that it holds stays held while it is dead."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = True
        self._parsed: dict[str, tuple[str, protocol.Request]] = {}
        world.time.every(lambda: world.random.uniform(20, 50), self.look)

    def _parse(self, writer: str, content: tuple[Json, str]) -> protocol.Request:
        if self._parsed.get(writer, ("", None))[0] != content[1]:
            self._parsed[writer] = content[1], protocol.parse_request(writer, content[0], self.world.now)
        return self._parsed[writer][1]

    def _requests(self) -> tuple[dict[str, dict[str, Any]], Json]:
        found: dict[str, dict[str, Any]] = {}
        refused = {}
        for writer in protocol.WRITERS:
            content = self.world.objects.get(protocol.request_key(NAME, writer))
            if content is None:
                continue
            try:
                request = self._parse(writer, content)
            except protocol.RequestError as error:
                refused[writer] = str(error)
                continue
            for each in request.nodes:
                if each.expires > self.world.now:
                    by = "patch" if each.request_id.startswith("patch-") else writer
                    found.setdefault(each.instance, {})[by] = each
        return found, refused

    def look(self) -> None:
        self.world.releases = self.alive
        if not self.alive or any(n.status != "Running" for n in self.world.of("head")):
            return
        requests, refused = self._requests()
        world = self.world
        nodes = {}
        for node in world.nodes:
            wanted = {
                by: each
                for by, each in requests.get(node.id, {}).items()
                if each.force or each.deadline > world.now or node.job is None
            }
            is_known = node.here and node.status != "Pending"
            node.held_by = frozenset(wanted) if is_known else frozenset()
        for name, wanted in requests.items():
            found = next((each for each in world.nodes if each.id == name), None)
            nodes[name] = self._status(found, wanted)
        busy = {n.id: [{"id": str(n.number), "user": "alice"}] for n in world.nodes if n.job}
        status = {
            "schema": 1,
            "beat": world.now,
            "requests": {},
            "refused": refused,
            "problem": "",
            "backup": None,
            "nodes": nodes,
            "busy": busy,
            "queue": len(busy),
        }
        world.write(protocol.status_key(NAME), status)

    def _status(self, node: Node | None, wanted: dict[str, Any]) -> Json:
        ids = {"operator" if by == "patch" else by: each.request_id for by, each in wanted.items()}
        if node is None or not node.here or node.status == "Pending":
            return {"state": "unknown", "message": f"{protocol.NO_INSTANCE}: it was replaced", "requests": ids}
        if node.job is None:
            return {"state": "ready", "message": "", "requests": ids}
        now = self.world.now
        for by, each in wanted.items():
            if each.force and each.deadline <= now:
                self.world.end_job(node.job, f"force of {by}")
                return {"state": "draining", "message": "ending", "requests": ids}
        if all(each.deadline <= now for each in wanted.values()):
            return {"state": "timed-out", "message": "jobs", "requests": ids}
        return {"state": "draining", "message": "jobs: 4711 of alice", "requests": ids}
