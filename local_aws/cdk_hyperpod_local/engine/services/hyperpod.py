"""HyperPod as a service of the engine.

`cdk_hyperpod_local.hyperpod` simulates it; the parts for IAM and EC2 are here.
"""

from __future__ import annotations

import contextvars
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from cdk_hyperpod_local.engine import seam
from cdk_hyperpod_local.engine.journal import Journal, request_of
from cdk_hyperpod_local.engine.kubernetes import KubernetesApi
from cdk_hyperpod_local.engine.options import EngineOptions
from cdk_hyperpod_local.engine.seam import alarms, policies
from cdk_hyperpod_local.engine.seam import services as requests
from cdk_hyperpod_local.engine.services import hyperpod_checks
from cdk_hyperpod_local.engine.services.eks import EksService
from cdk_hyperpod_local.engine.services.hyperpod_on_eks import HyperPodOnEks
from cdk_hyperpod_local.engine.services.hyperpod_outside import AccountOutside
from cdk_hyperpod_local.engine.services.json_service import CLOUDFORMATION, JsonService, failure, success
from cdk_hyperpod_local.engine.services.task_governance import Governance
from cdk_hyperpod_local.hyperpod import (
    ApiError,
    Call,
    CallerKilled,
    HyperPod,
    LostReplyError,
    SystemClock,
    Timings,
    handle_json,
)
from cdk_hyperpod_local.hyperpod.cfn_handler import VanishedGroups

Json = Any

# Whether the current request reached HyperPod, which then records it. A request that IAM refuses does not.
_reached: contextvars.ContextVar[bool] = contextvars.ContextVar("reached", default=False)


@dataclass(frozen=True, kw_only=True)
class HandlerOptions:
    """How CloudFormation's handler of the cluster behaves if that is not documented (`hyperpod/cfn_handler.py`)."""

    vanished_groups: VanishedGroups = "delete_present"
    retries_conflicts: bool = True
    events_show: Literal["whole", "absent", "cut", "late"] = "whole"
    """What CloudFormation's events show of a custom resource's properties; late: events appear some time after they happened."""
    names_cluster_at_once: bool = True
    """CloudFormation's UPDATE_IN_PROGRESS of the cluster has its PhysicalResourceId, which is optional. Its UPDATE_COMPLETE does."""


class HyperPodService(JsonService):
    def __init__(self, options: EngineOptions, journal: Journal, control_planes: EksService) -> None:
        super().__init__("sagemaker", self._reply, journal)
        self.handler = HandlerOptions()
        self.speed = options.function_speed
        # Real time with shorter waits: clients compare launch times with the times of their stack.
        self.timings = Timings().faster(options.speed)
        self._outside = AccountOutside(alarms.alarms, _may_read_alarm, self._kubernetes)
        self.hyperpod = HyperPod(
            clock=SystemClock(),
            seed=options.seed,
            timings=self.timings,
            outside=self._outside,
            on_call=self._record_call,
        )
        self._control_planes = control_planes
        self.on_eks = HyperPodOnEks(lambda: self.hyperpod, control_planes)
        self.governance = Governance(clusters=self.on_eks, now=time.time, speed=options.speed, seed=options.seed)

    # -- state -----------------------------------------------------------------------------------------------------

    def get_state(self) -> Json:
        with self.lock:
            # "model" is HyperPod's key, as the previous version wrote it.
            return {"model": self.hyperpod.to_json(), "governance": self.governance.records}

    def load_persisted_state(self, data: Json) -> None:
        self.hyperpod = HyperPod.from_json(data["model"], clock=SystemClock(), on_call=self._record_call)
        self.hyperpod.timings, self.hyperpod.outside = self.timings, self._outside
        self.governance.records = data["governance"]

    def reset(self) -> None:
        self.hyperpod = HyperPod(
            clock=SystemClock(), timings=self.timings, outside=self._outside, on_call=self._record_call
        )
        self.governance.records = {}

    def _kubernetes(self, arn: str) -> KubernetesApi | None:
        """The Kubernetes API of an EKS cluster."""
        cluster = self._control_planes.cluster(arn)
        return self._control_planes.state.kubernetes.get(cluster["name"]) if cluster else None

    # -- requests ----------------------------------------------------------------------------------------------------

    async def handle_request(
        self, method: str, path: str, headers: dict[str, str], body: bytes, query: Json
    ) -> requests.Reply:
        operation = requests.operation_of(headers)
        for role in hyperpod_checks.roles_passed(operation, body):
            context = {"iam:PassedToService": "sagemaker.amazonaws.com"}
            if message := requests.denied(headers, query, "iam:PassRole", role, context):
                return failure("AccessDeniedException", message)
        _reached.set(True)
        return await super().handle_request(method, path, headers, body, query)

    def observe(self, headers: Json, body: bytes, query: Json, reply: requests.Reply) -> None:
        if not _reached.get():
            super().observe(headers, body, query, reply)
        _reached.set(False)

    def _reply(self, operation: str, body: bytes, caller: str, account: str, region: str) -> requests.Reply:
        try:
            if refusal := self.refusal(operation, body):
                self._note(caller, operation, body, 400, failure("ValidationException", refusal)[2])
                return failure("ValidationException", refusal)
            if self.governance.serves(operation, request_of(body)):
                return self._govern(operation, body, caller, account, region)
            reply = handle_json(self.hyperpod, operation, body, principal=caller, account=account, region=region)
            if reply[0] == 200:
                self.on_eks.prepare(operation, request_of(body))
            return reply
        except LostReplyError:
            # The closest form in HTTP of a reply that never came: an error without content that may be retried.
            return 500, {}, b""
        except CallerKilled:
            requests.kill_function(caller)
            return 500, {}, b""

    def refusal(self, operation: str, body: bytes) -> str | None:
        """Why a valid request cannot succeed in this account; None if it can."""
        return hyperpod_checks.refusal(operation, body, self.on_eks.control_plane)

    def _govern(self, operation: str, body: bytes, caller: str, account: str, region: str) -> requests.Reply:
        try:
            request = json.loads(body or b"{}")
            reply = success(self.governance.call(operation, request, account=account, region=region))
        except ApiError as error:
            reply = failure(error.code, error.message)
        if caller != CLOUDFORMATION:
            self._note(caller, operation, body, reply[0], reply[2])
        return reply

    def _record_call(self, call: Call) -> None:
        if call.principal == CLOUDFORMATION and not call.mutating:
            return
        self._journal.record(
            who=call.principal,
            service=self.name,
            operation=call.operation,
            request=call.params,
            status=200 if call.outcome == "ok" else 400,
            error=None if call.outcome == "ok" else (call.outcome, call.message),
            reply=call.reply,
        )

    # -- what others have to know --------------------------------------------------------------------------------------

    def occupants(self, resource_id: str) -> Iterator[str]:
        """The clusters whose nodes have an interface in this subnet or with this security group."""
        for cluster in self.hyperpod._state.clusters.values():
            networks = [cluster.settings.get("VpcConfig")]
            networks += [group.spec.get("OverrideVpcConfig") for group in cluster.groups.values()]
            if cluster.nodes and any(resource_id in json.dumps(network) for network in networks if network):
                yield cluster.name

    def tagged(self) -> Iterator[tuple[str, list[Json]]]:
        for cluster in self.hyperpod._state.clusters.values():
            yield cluster.arn, [{"Key": key, "Value": value} for key, value in cluster.tags.items()]
        yield from self.governance.tags()

    def resource(self, operation: str, request: Json) -> str | None:
        """The ARN that policies name for this call: the cluster's, whether the caller passed its name or its ARN."""
        if "ComputeQuota" in operation or "SchedulerConfig" in operation:
            return self.governance.resource(operation, request, account=seam.account(), region=seam.region())
        given = str(request.get("ResourceArn") or request.get("ClusterName") or "")
        if given.startswith("arn:"):
            return given
        if "TrainingPlanName" in request:
            return f"arn:aws:sagemaker:{seam.region()}:{seam.account()}:training-plan/{request['TrainingPlanName']}"
        where = f"arn:aws:sagemaker:{seam.region()}:{seam.account()}:cluster"
        if operation == "CreateCluster":
            return f"{where}/*"
        for cluster in self.hyperpod._state.clusters.values():
            if (cluster.name, cluster.account, cluster.region) == (given, seam.account(), seam.region()):
                return cluster.arn
        return f"{where}/{given}" if given else None


def _may_read_alarm(role: str, session: str, alarm: str) -> bool:
    return policies.role_may(role, session, "cloudwatch:DescribeAlarms", alarm)


def install(options: EngineOptions, journal: Journal, control_planes: EksService) -> HyperPodService:
    service = HyperPodService(options, journal, control_planes)
    requests.register_service("sagemaker", service, target_prefix="SageMaker.", tagged=service.tagged)
    requests.resolve_resources("sagemaker", service.resource)
    return service
