"""All texts of the scale-down that a user reads, by subject. CloudFormation's event, the log and `plan` show the same texts.

May import: kernel, scale_down.model.
"""

from __future__ import annotations

from . import attributes, failures, notes, refusals, waits

__all__ = ["attributes", "failures", "notes", "refusals", "waits"]
