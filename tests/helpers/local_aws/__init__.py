"""Helpers for tests with the local AWS: separate engines, clusters on them, and templates without a permission."""
