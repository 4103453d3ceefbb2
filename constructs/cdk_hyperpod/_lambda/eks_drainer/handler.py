"""The name by which Lambda finds the drainer's entry point; the rest of the library has no need of it."""

from hyperpod_provider.eks_drainer.handler import on_event  # type: ignore[import-not-found]

__all__ = ["on_event"]
