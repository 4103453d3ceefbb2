"""Errors that the user can fix."""

from __future__ import annotations


class EngineError(Exception):
    """One line for the user: what is wrong, where, and what to do."""
