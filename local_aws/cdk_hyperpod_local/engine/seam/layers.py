"""Unpacks each layer once, for all functions of all engines.

Its files are always the same, and its compiled Python modules can be reused. On Lambda, functions cannot write to a
layer either.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
import types
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ministack.core import lambda_runtime  # type: ignore[import-not-found]


def unpack_once(folder: Path) -> None:
    """Keep every layer's files below `folder`, in a folder named by the archive's content.

    A function's folder has a link to them.
    """

    class Archive(zipfile.ZipFile):
        """Replaces the archive that a function's start opens: `code.zip`, or `layer_0.zip` and so on beside it."""

        @functools.cached_property
        def _shared(self) -> Path | None:
            if not os.path.basename(str(self.filename)).startswith("layer_"):
                return None
            return folder / hashlib.sha256(Path(str(self.filename)).read_bytes()).hexdigest()

        def namelist(self) -> list[str]:
            """For the check of each name, which the first unpacking had already."""
            return [] if self._shared is not None and self._shared.exists() else super().namelist()

        def extractall(
            self, path: Any = None, members: Iterable[str | zipfile.ZipInfo] | None = None, pwd: bytes | None = None
        ) -> None:
            if self._shared is None:
                super().extractall(path, members, pwd)
                return
            if not self._shared.exists():
                self._unpack(self._shared)
            os.rmdir(path)
            os.symlink(self._shared, path)

        def _unpack(self, shared: Path) -> None:
            shared.parent.mkdir(parents=True, exist_ok=True)
            fresh = tempfile.mkdtemp(dir=shared.parent)
            super().extractall(fresh)
            try:
                os.rename(fresh, shared)
            except OSError:  # another function was faster
                shutil.rmtree(fresh)

    lambda_runtime.zipfile = types.SimpleNamespace(**{**vars(zipfile), "ZipFile": Archive})
