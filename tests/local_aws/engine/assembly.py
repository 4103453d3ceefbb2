"""Puts the engine together: ministack, our services, our resource types, the journal and the control routes."""

from __future__ import annotations

import time
from typing import Any

from local_aws.engine import control, resources, seam
from local_aws.engine.journal import Journal
from local_aws.engine.options import EngineOptions
from local_aws.engine.resources.ec2_network import Ec2Network
from local_aws.engine.schemas import Schemas
from local_aws.engine.seam import cloudformation
from local_aws.engine.seam import services as requests
from local_aws.engine.services import fsx, hyperpod
from local_aws.engine.services.fsx_model import Fsx


def assemble(options: EngineOptions) -> Any:
    """The ASGI application."""
    seam.check_version()
    journal = Journal(options.journal)
    model = Fsx(network=Ec2Network(), now=time.time, speed=options.speed, seed=options.seed)
    file_systems = fsx.install(model, journal)
    clusters = hyperpod.install(options, journal)
    resources.install(Schemas(options.schemas), file_systems, clusters)

    services = {"SageMaker.": clusters, "AWSSimbaAPIService_v20180301.": file_systems}

    def observe(method: str, headers: Any, body: bytes, query: Any, reply: requests.Reply) -> None:
        target = str(headers.get("x-amz-target", ""))
        for prefix, service in services.items():
            if target.startswith(prefix):
                service.observe(headers, body, query, reply)

    requests.observe_requests(observe)
    requests.add_route(control.PREFIX, control.Control(options, clusters).handle)
    cloudformation.after_stack_operation(requests.save_state)
    return seam.asgi()
