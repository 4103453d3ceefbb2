"""What goes wrong in a way that the user can mend."""

from __future__ import annotations


class EngineError(Exception):
    """One line for the user: what, why, what to do."""
