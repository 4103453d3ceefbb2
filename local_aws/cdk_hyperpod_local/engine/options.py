"""What an engine is started with; the only way in is the command line, so that nothing hides in the environment."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

_FASTEST_FUNCTIONS = 100.0
"""A function's own run takes its real time: on a faster clock, starting it would use up the time that it has."""


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
        """How many times faster the clock of a Lambda function goes, and a state machine that polls it."""
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
        """The seconds that the clock of Lambda functions was told to skip in all, once it was told."""
        return self.state / "skipped"

    @property
    def layers(self) -> Path:
        """Unpacked ones, which all engines of a checkout share and none changes."""
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
    parser.add_argument("--state", type=Path, required=True, help="folder for everything that this engine keeps")
    parser.add_argument("--schemas", type=Path, required=True, help="cfn-lint's folder of CloudFormation schemas")
    parser.add_argument("--kubernetes-schemas", type=Path, required=True, help="kubernetes-validate's, of one version")
    parser.add_argument("--node-modules", type=Path, required=True, help="what Node.js Lambda functions may require")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times faster AWS's long waits pass")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice the services make")
    parser.add_argument(
        "--owner", type=int, help="process that the engine, and its state, does not outlive (absent: it stays)"
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
