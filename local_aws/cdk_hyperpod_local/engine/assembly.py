"""Connects the parts of the engine: ministack, our services, our resource types, the journal and the control routes."""

from __future__ import annotations

import os
import time
from typing import Any

from cdk_hyperpod_local.engine import control, resources, seam
from cdk_hyperpod_local.engine.clock import FunctionClock
from cdk_hyperpod_local.engine.gate import ANY, Gate, Handler, Route
from cdk_hyperpod_local.engine.journal import Checks, Journal
from cdk_hyperpod_local.engine.kubernetes import assembly as kubernetes
from cdk_hyperpod_local.engine.kubernetes import real
from cdk_hyperpod_local.engine.options import EngineOptions
from cdk_hyperpod_local.engine.resources.ec2_network import Ec2Network
from cdk_hyperpod_local.engine.resources.eks_account import EksAccount
from cdk_hyperpod_local.engine.schemas import Schemas
from cdk_hyperpod_local.engine.seam import (
    answers,
    cloudformation,
    endpoints,
    events,
    execution_role,
    function_logs,
    layers,
    queues,
    signatures,
    subscriptions,
    topics,
)
from cdk_hyperpod_local.engine.seam import services as requests
from cdk_hyperpod_local.engine.services import (
    alarms,
    ec2_lookups,
    eks,
    encrypted_buckets,
    fsx,
    hyperpod,
    hyperpod_notices,
    log_keys,
    node_logs,
    quotas_and_prices,
)
from cdk_hyperpod_local.engine.services.eks_state import EksState
from cdk_hyperpod_local.engine.services.fsx_file_systems import Fsx
from cdk_hyperpod_local.engine.services.kubernetes_nodes import KubernetesNodes


def save() -> None:
    """Write everything to the state folder, unless a stack operation is in progress: a restarted engine would never end
    it.

    So a restarted engine continues from the last time at which no operation ran, even if the last one was killed.
    """
    if not cloudformation.is_working():
        requests.save_state()


def routes(controls: Handler, review: Handler | None) -> tuple[Route, ...]:
    """The routes without an AWS signature. `review`: answers TokenReviews; absent if no API server sends any."""
    return (
        Route("GET", f"{control.PREFIX}status", controls),  # that the engine is running
        Route(ANY, control.PREFIX, controls, needs_secret=True),
        Route("PUT", answers.RESOURCES, answers.of_a_resource),
        Route("PUT", answers.SIGNALS, answers.of_a_wait_condition),
        Route("POST", real.ROUTE, review),  # an API server that reviews a token: its request contains the token
    )


def assemble(options: EngineOptions, secret: str) -> Any:
    """The ASGI application. `secret`: the root key's, for this start."""
    seam.check_version()
    journal = Journal(options.journal)
    simulated_fsx = Fsx(network=Ec2Network(), now=time.time, speed=options.speed, seed=options.seed)
    file_systems = fsx.install(simulated_fsx, journal)
    # These three call each other in a circle, but no call happens before all of them exist.
    apis, review = kubernetes.make(options, lambda cluster, caller: control_planes.identify(cluster, caller))
    account = EksAccount(lambda: clusters)
    state = EksState(account=account, kubernetes=apis, now=time.time, speed=options.speed, seed=options.seed)
    control_planes = eks.install(state, journal)
    clusters = hyperpod.install(options, journal, control_planes)
    quotas_and_prices.install(lambda: clusters.hyperpod, journal)
    ec2_lookups.install()
    KubernetesNodes(clusters.on_eks, control_planes).start()
    resources.install(Schemas(options.schemas), file_systems, control_planes, clusters)

    encrypted_buckets.install()
    log_keys.install()
    node_logs.install(lambda: clusters.hyperpod)
    events.install(options.function_speed)
    queues.install(options.function_speed)
    function_logs.install()
    subscriptions.install()
    topics.install()
    clock = FunctionClock(
        starts=float(os.environ["LOCAL_AWS_CLOCK_STARTS"]), speed=options.function_speed, skipped=options.skipped
    )
    alarms.Alarms(clock, simulated_fsx.storage).start()
    hyperpod_notices.start(lambda: clusters.hyperpod)
    endpoints.install()
    layers.unpack_once(options.layers)
    execution_role.install()

    services = {"SageMaker.": clusters, "AWSSimbaAPIService_v20180301.": file_systems}

    def observe(method: str, path: str, headers: Any, body: bytes, query: Any, reply: requests.Reply) -> None:
        target = str(headers.get("x-amz-target", ""))
        for prefix, service in services.items():
            if target.startswith(prefix):
                service.observe(headers, body, query, reply)
        if requests.is_for("eks", method, path, headers, query):
            control_planes.observe_path(method, path, headers, body, query, reply)

    requests.observe_requests(observe)
    requests.observe_checks(Checks(options.checks).record)
    if options.owner is None:
        cloudformation.after_stack_operation(save)
    return Gate(
        seam.asgi(),
        hosts=frozenset(f"{name}:{options.port}" for name in ("127.0.0.1", "localhost")),
        routes=routes(control.Control(options, clusters, simulated_fsx).handle, review),
        secret=secret,
        signature_problem=signatures.signature_problem,
        refusal=signatures.refusal,
    )
