"""The clock of Lambda functions, schedules and alarms: faster than the machine's, and moved by what is skipped."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionClock:
    """The same clock as in `lambda_path/sitecustomize.py`."""

    starts: float
    """When the engine started, by the machine's clock."""
    speed: float
    skipped: Path
    """`EngineOptions.skipped`."""

    def now(self) -> float:
        """Seconds since 1970."""
        now = time.time()
        skipped = float(self.skipped.read_text("utf-8")) if self.skipped.exists() else 0.0
        return now + (now - self.starts) * (self.speed - 1) + skipped
