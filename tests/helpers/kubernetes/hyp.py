"""Prints what `hyp create hyp-pytorch-job` submits, with the SDK's own code from the flags to the request. A separate
program.

Standard input: a JSON list of flags by name, such as {"job_name": "a", "instance_type": "ml.p5.48xlarge"}. Standard
output: the list of objects that would be created. Nothing is sent: the Kubernetes client, the AWS clients and the
telemetry are packages that are not installed, and their replacements only record their calls.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

ABSENT = ("boto3", "botocore", "click", "kubernetes", "requests", "tabulate")
TELEMETRY = "sagemaker.hyperpod.common.telemetry.telemetry_logging"


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of packages that are not installed, and of the telemetry, which is."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name == TELEMETRY or name.partition(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = StandIn(spec.name)
        if spec.name == TELEMETRY:
            module.__dict__["_hyperpod_telemetry_emitter"] = untold
        return module

    def exec_module(self, module: ModuleType) -> None:
        del module


class StandIn(ModuleType):
    """A module with any attribute."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # Exceptions are caught by their classes, and one class is a base class.
        made = type(name, (Exception,), {}) if name.endswith(("Exception", "Error")) else MagicMock(name=name)
        self.__dict__[name] = made
        return made


def untold(*args: object) -> Callable[[Any], Any]:
    """The decorator that would report a call to AWS."""
    del args
    return lambda function: function


def main(folder: str) -> None:
    """Render every job in standard input."""
    sys.path.insert(0, folder)
    sys.meta_path.insert(0, StandIns())
    from hyperpod_pytorch_job_template.registry import SCHEMA_REGISTRY  # type: ignore[import-not-found]
    from kubernetes import client  # type: ignore[import-not-found]
    from sagemaker.hyperpod.training.hyperpod_pytorch_job import (  # type: ignore[import-not-found]
        HyperPodPytorchJob,
    )

    HyperPodPytorchJob.is_kubeconfig_loaded = True
    create = client.CustomObjectsApi.return_value.create_namespaced_custom_object
    bodies = []
    for flags in json.load(sys.stdin):
        create.reset_mock()
        SCHEMA_REGISTRY["1.1"](**flags).to_domain().create()
        bodies.append(create.call_args.kwargs["body"])
    sys.__stdout__.write(json.dumps(bodies))  # type: ignore[union-attr]


if __name__ == "__main__":
    main(sys.argv[1])
