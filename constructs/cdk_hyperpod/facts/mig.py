"""The partitions of GPUs (NVIDIA MIG) by instance type, as AWS's SDK has them.

Source: `INSTANCE_TYPE_MIG_PROFILES` of
https://github.com/aws/sagemaker-hyperpod-cli/blob/main/src/sagemaker/hyperpod/training/constants.py (3.12.0). A test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

SLICES = 7
"""Compute slices of a GPU. `mig-3g.40gb` has three of them."""

_H100 = ("mig-1g.10gb", "mig-1g.20gb", "mig-2g.20gb", "mig-3g.40gb", "mig-4g.40gb", "mig-7g.80gb")
_H200 = ("mig-1g.18gb", "mig-1g.35gb", "mig-2g.35gb", "mig-3g.71gb", "mig-4g.71gb", "mig-7g.141gb")

MIG_PROFILES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ml.p4d.24xlarge": ("mig-1g.5gb", "mig-1g.10gb", "mig-2g.10gb", "mig-3g.20gb", "mig-4g.20gb", "mig-7g.40gb"),
        "ml.p4de.24xlarge": _H100,
        "ml.p5.48xlarge": _H100,
        "ml.p5e.48xlarge": _H200,
        "ml.p5en.48xlarge": _H200,
        "ml.p6-b200.48xlarge": (
            "mig-1g.23gb",
            "mig-1g.45gb",
            "mig-2g.45gb",
            "mig-3g.90gb",
            "mig-4g.90gb",
            "mig-7g.180gb",
        ),
        "ml.p6-b300.48xlarge": (
            "mig-1g.34gb",
            "mig-1g.67gb",
            "mig-2g.67gb",
            "mig-3g.135gb",
            "mig-4g.135gb",
            "mig-7g.269gb",
        ),
        "ml.p6e-gb200.36xlarge": (
            "mig-1g.23gb",
            "mig-1g.47gb",
            "mig-2g.47gb",
            "mig-3g.93gb",
            "mig-4g.93gb",
            "mig-7g.186gb",
        ),
    }
)
"""Profiles by instance type. A type that is missing has GPUs without MIG, or none."""

ALL_PROFILES = tuple(dict.fromkeys(profile for profiles in MIG_PROFILES.values() for profile in profiles))
"""Every profile, each once."""


def slices_of(profile: str) -> int:
    """The compute slices of a partition."""
    match = re.fullmatch(r"mig-([1-7])g\.[0-9]+gb", profile)
    return int(match[1]) if match else SLICES
