"""Kubernetes' quantities: `500m`, `1536`, `5120Gi`."""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["count_quantity", "cpu_quantity", "memory_quantity", "parse_quantity"]

_UNITS = {
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000**power) for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(m|k|[MGTPE]|[KMGTPE]i|)")


def parse_quantity(text: str) -> Fraction | None:
    """The amount in vCPUs, bytes or pieces. None: the text is not a quantity. Exponents (`1e3`) are not accepted."""
    match = _QUANTITY.fullmatch(text)
    return Fraction(match[1]) * _UNITS[match[2]] if match else None


def count_quantity(count: int) -> str:
    """Pieces as text, as the API server writes them: `64`, and `1k` for 1000."""
    thousands = 0
    while count and count % 1000 == 0 and thousands < 3:
        count, thousands = count // 1000, thousands + 1
    return f"{count}{('', 'k', 'M', 'G')[thousands]}"


def cpu_quantity(millicpus: int) -> str:
    """vCPUs as text: `179`, or `600m` where they are not whole."""
    return str(millicpus // 1000) if millicpus % 1000 == 0 else f"{millicpus}m"


def memory_quantity(mib: int) -> str:
    """Memory as text: `1890Gi`, or `921Mi` where the GiB are not whole."""
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"
