"""The options of an engine's start. They come from the command line only: the environment has no influence."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

_FASTEST_FUNCTIONS = 100.0
"""The maximum speed of a function's clock.

Its code runs in real time, so on a faster clock its start would use up its timeout.
"""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    port: int
    state: Path
    schemas: Path
    kubernetes_schemas: Path
    node_modules: Path
    speed: float
    seed: int
    owner: int | None

    @property
    def function_speed(self) -> float:
        """How much faster the clock runs for Lambda functions, and for state machines that poll."""
        return min(self.speed, _FASTEST_FUNCTIONS)

    @property
    def journal(self) -> Path:
        return self.state / "journal.jsonl"

    @property
    def checks(self) -> Path:
        return self.state / "checks.jsonl"

    @property
    def data(self) -> Path:
        return self.state / "data"

    @property
    def temporary(self) -> Path:
        return self.state / "tmp"

    @property
    def skipped(self) -> Path:
        """The file with the total seconds that the clock of Lambda functions skips. Absent until the first skip."""
        return self.state / "skipped"

    @property
    def layers(self) -> Path:
        """Unpacked layers, which all engines of a checkout share. No engine changes them."""
        return self.state.parent / "layers"

    @property
    def authority(self) -> Path:
        return self.state / "ca.pem"

    @property
    def secret(self) -> Path:
        """The root key's secret of this start, which `daemon.py` wrote."""
        return self.state / "secret"

    @property
    def certificate(self) -> Path:
        return self.state / "server.pem"

    @property
    def key(self) -> Path:
        return self.state / "server.key"


def parse(arguments: list[str]) -> EngineOptions:
    parser = argparse.ArgumentParser(description="The local AWS engine; `cdk-hyperpod local deploy` starts it")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True, help="folder of this engine's state")
    parser.add_argument("--schemas", type=Path, required=True, help="folder of cfn-lint with CloudFormation's schemas")
    parser.add_argument(
        "--kubernetes-schemas",
        type=Path,
        required=True,
        help="folder of kubernetes-validate with one version's schemas",
    )
    parser.add_argument(
        "--node-modules", type=Path, required=True, help="modules that Node.js Lambda functions can require"
    )
    parser.add_argument("--speed", type=float, default=1.0, help="how many times faster than AWS the waits pass")
    parser.add_argument("--seed", type=int, default=0, help="seed of every random choice of the services")
    parser.add_argument(
        "--owner",
        type=int,
        help="process with which the engine ends, and its state is dropped (absent: the engine keeps running)",
    )
    given = parser.parse_args(arguments)
    return EngineOptions(
        port=given.port,
        state=given.state.resolve(),
        schemas=given.schemas.resolve(),
        kubernetes_schemas=given.kubernetes_schemas.resolve(),
        node_modules=given.node_modules.resolve(),
        speed=given.speed,
        seed=given.seed,
        owner=given.owner,
    )
