"""Chooses the kind of Kubernetes API, and answers its questions about tokens."""

from __future__ import annotations

import asyncio
import json
import os

from cdk_hyperpod_local.engine.gate import Handler, Reply, Request
from cdk_hyperpod_local.engine.kubernetes import Identify, KubernetesApis, real, recording
from cdk_hyperpod_local.engine.kubernetes.control_plane import built
from cdk_hyperpod_local.engine.kubernetes.running import Apis
from cdk_hyperpod_local.engine.kubernetes.tokens import Callers
from cdk_hyperpod_local.engine.options import EngineOptions


def make(options: EngineOptions, identify: Identify) -> tuple[KubernetesApis, Handler | None]:
    """The APIs, and the handler of TokenReviews; no handler if no API server is built."""
    url = f"https://127.0.0.1:{options.port}"
    callers = Callers(url, options.authority)

    def who(cluster: str, token: str) -> tuple[str, list[str]] | None:
        arn = callers.arn(cluster, token)
        return None if arn is None else identify(cluster, arn)

    folder = options.state / "kubernetes"
    if built() is None:
        schemas, authority = options.kubernetes_schemas, options.authority
        return Apis(folder, recording.start(schemas, authority, options.certificate, options.key, who)), None
    preferences = options.state / "kuberc"
    real.write_preferences(preferences)
    # for the Lambda functions
    older = {"LOCAL_AWS_EVICTIONS": real.EVICTIONS, "LOCAL_AWS_MISSING_KINDS": ",".join(real.MISSING_KINDS)}
    os.environ.update({"KUBERC": str(preferences), **older})

    async def review(request: Request) -> Reply:
        cluster = request.path.removeprefix(real.ROUTE)
        # In a thread, because the answer needs STS, which this same engine serves.
        answer = await asyncio.to_thread(real.review, request.body, lambda token: who(cluster, token))
        status = 400 if answer is None else 200
        return status, {"Content-Type": "application/json"}, json.dumps(answer).encode()

    return Apis(folder, real.start(url, options.authority)), review
