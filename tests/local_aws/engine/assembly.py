"""Puts the engine together: ministack, our services, our resource types, the journal and the control routes."""

from __future__ import annotations

import time
from typing import Any

from local_aws.engine import control, resources, seam
from local_aws.engine.journal import Checks, Journal
from local_aws.engine.options import EngineOptions
from local_aws.engine.resources.ec2_network import Ec2Network
from local_aws.engine.schemas import Schemas
from local_aws.engine.seam import cloudformation
from local_aws.engine.seam import services as requests
from local_aws.engine.services import encrypted_buckets, fsx, hyperpod
from local_aws.engine.services.fsx_model import Fsx


def save() -> None:
    """Write everything to the state folder, unless a stack is in the middle of an operation: nobody would end it.

    So a started engine goes on where the last one was at rest, whether that one was told to end or not.
    """
    if not cloudformation.is_working():
        requests.save_state()


def assemble(options: EngineOptions) -> Any:
    """The ASGI application."""
    seam.check_version()
    journal = Journal(options.journal)
    model = Fsx(network=Ec2Network(), now=time.time, speed=options.speed, seed=options.seed)
    file_systems = fsx.install(model, journal)
    clusters = hyperpod.install(options, journal)
    resources.install(Schemas(options.schemas), file_systems, clusters)

    encrypted_buckets.install()

    services = {"SageMaker.": clusters, "AWSSimbaAPIService_v20180301.": file_systems}

    def observe(method: str, headers: Any, body: bytes, query: Any, reply: requests.Reply) -> None:
        target = str(headers.get("x-amz-target", ""))
        for prefix, service in services.items():
            if target.startswith(prefix):
                service.observe(headers, body, query, reply)

    requests.observe_requests(observe)
    requests.observe_checks(Checks(options.checks).record)
    requests.add_route(control.PREFIX, control.Control(options, clusters).handle)
    if options.owner is None:
        cloudformation.after_stack_operation(save)
    return seam.asgi()
