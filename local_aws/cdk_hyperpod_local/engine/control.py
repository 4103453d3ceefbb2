"""The engine's own routes, beside AWS's: its status, its clock, and the faults that tests request."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import Any

from cdk_hyperpod_local.engine.gate import Reply, Request
from cdk_hyperpod_local.engine.options import EngineOptions
from cdk_hyperpod_local.engine.services.fsx_file_systems import Fsx
from cdk_hyperpod_local.engine.services.hyperpod import HandlerOptions, HyperPodService
from cdk_hyperpod_local.hyperpod import Behaviour, Fault, Faults, Plan

PREFIX = "/_local_aws/"
Json = Any


class Control:
    """Serves the paths below PREFIX for callers with the engine's secret. The status is public (`assembly.py`)."""

    def __init__(self, options: EngineOptions, clusters: HyperPodService, file_systems: Fsx) -> None:
        self._options = options
        self._clusters = clusters
        self._file_systems = file_systems
        self._limited: set[str] = set()
        self._named: set[str] = set()

    async def handle(self, request: Request) -> Reply:
        match request.method, request.path.removeprefix(PREFIX):
            case "GET", "status":
                return _json(200, {"pid": os.getpid(), "port": self._options.port, "speed": self._options.speed})
            case "GET", "hyperpod":
                return _json(200, self._facts())
            case "POST", "hyperpod":
                try:
                    self._change(json.loads(request.body))
                except (TypeError, ValueError, KeyError) as error:
                    return _json(400, {"message": str(error)})
                return _json(200, self._facts())
            case "POST", "clock":
                return self._skip(json.loads(request.body))
        return _json(404, {"message": f"{request.method} {request.path} is not served"})

    def _skip(self, seconds: Json) -> Reply:
        """Move the clock of Lambda functions forward, on top of earlier moves."""
        if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            return _json(400, {"message": f"{seconds} cannot be skipped. Use a number of seconds above 0"})
        file = self._options.skipped
        whole = seconds + (float(file.read_text("utf-8")) if file.exists() else 0)
        # In one step, because a function may read the file at the same time.
        fresh = file.with_suffix(".new")
        fresh.write_text(str(whole), "utf-8")
        fresh.replace(file)
        return _json(200, whole)

    def _facts(self) -> Json:
        """State that no API shows: which nodes were terminated, and why, and which got another root volume."""
        hyperpod = self._clusters.hyperpod
        return {
            "terminations": [dataclasses.asdict(item) for item in hyperpod.terminations],
            "random_terminations": [dataclasses.asdict(item) for item in hyperpod.random_terminations],
            "re_images": [dataclasses.asdict(item) for item in hyperpod.re_images],
        }

    def _change(self, wanted: Json) -> None:
        """Set fields of `faults`, `behaviour`, `timings` and `handler` (CloudFormation's, of the cluster), and these:

        `capacity`, `quota`: instance type -> limit or null. `quotas`: name -> value or null. `plans`: training plans,
        by the fields of `Plan`. `nodes`: instance id -> fields of `Node`. `node_faults`: instance id -> fields of `Fault`.
        `used_storage`: file system -> share that is used. `image`: `version` of a newer platform image, and the status of the
        `older` ones. `defaults`: true resets everything but the nodes and the image first.
        """
        hyperpod = self._clusters.hyperpod
        unknown = set(wanted) - {
            "faults",
            "behaviour",
            "timings",
            "handler",
            "capacity",
            "quota",
            "quotas",
            "plans",
            "nodes",
            "node_faults",
            "used_storage",
            "image",
            "defaults",
        }
        if unknown:
            raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
        if wanted.get("defaults"):
            self._reset()
        if "faults" in wanted:
            sets = {
                "undying_nodes": set,
                "failing_groups": set,
                "failing_images": set,
                "throttle_operations": frozenset,
            }
            fields = {key: sets[key](value) if key in sets else value for key, value in wanted["faults"].items()}
            hyperpod.faults = dataclasses.replace(hyperpod.faults, **fields)
        if "behaviour" in wanted:
            hyperpod.behaviour = dataclasses.replace(hyperpod.behaviour, **wanted["behaviour"])
        if "timings" in wanted:
            hyperpod.timings = dataclasses.replace(hyperpod.timings, **wanted["timings"])
        if "handler" in wanted:
            self._clusters.handler = dataclasses.replace(self._clusters.handler, **wanted["handler"])
        for instance_type, limit in wanted.get("capacity", {}).items():
            hyperpod.set_capacity(instance_type, limit)
        for instance_type, limit in wanted.get("quota", {}).items():
            hyperpod.set_quota(instance_type, limit)
        for name, value in wanted.get("quotas", {}).items():
            hyperpod.set_named_quota(name, value)
        for plan in wanted.get("plans", ()):
            hyperpod.set_plan(Plan(**plan))
        for node, fields in wanted.get("nodes", {}).items():
            hyperpod.change_node(node, **fields)
        for node, fields in wanted.get("node_faults", {}).items():
            hyperpod.report_fault(node, Fault(**fields))
        if "image" in wanted:
            hyperpod.release_image(**wanted["image"])
        self._file_systems.used |= wanted.get("used_storage", {})
        self._named |= {*wanted.get("quotas", {})}
        self._limited |= {*wanted.get("capacity", {}), *wanted.get("quota", {})}

    def _reset(self) -> None:
        hyperpod = self._clusters.hyperpod
        hyperpod.faults, hyperpod.behaviour, hyperpod.timings = Faults(), Behaviour(), self._clusters.timings
        self._clusters.handler = HandlerOptions()
        self._file_systems.used.clear()
        for instance_type in self._limited:
            hyperpod.set_capacity(instance_type, None)
            hyperpod.set_quota(instance_type, None)
        for name in self._named:
            hyperpod.set_named_quota(name, None)


def _json(status: int, reply: Json) -> Reply:
    return status, {"Content-Type": "application/json"}, json.dumps(reply).encode()
