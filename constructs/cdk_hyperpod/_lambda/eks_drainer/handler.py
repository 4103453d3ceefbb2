"""The drainer's entry point, by the handler's name in templates; the code is in hyperpod_provider/eks_drainer/."""

from hyperpod_provider.eks_drainer.handler import on_event  # type: ignore[import-not-found]

__all__ = ["on_event"]
