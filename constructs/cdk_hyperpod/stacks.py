"""In a checkout, the stacks of the top-level folder `stacks/`. A wheel has that folder itself under this name, and not this file."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stacks import *

_FOLDER = Path(__file__).resolve().parents[2] / "stacks"
_spec = spec_from_file_location(__name__, _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)])
assert _spec is not None and _spec.loader is not None
_module = sys.modules[__name__] = module_from_spec(_spec)
_spec.loader.exec_module(_module)
