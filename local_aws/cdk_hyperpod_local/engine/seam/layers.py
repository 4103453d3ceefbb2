"""A layer is unpacked once, for every function of every engine: its files are the same each time, and its Python programs
find what was compiled of them at their first start. On Lambda nobody can write to them either.
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
    """Keep every layer's files below `folder`, by the archive's own content; a function's folder has a link to them."""

    class Archive(zipfile.ZipFile):
        """What a function's start opens: `code.zip`, and `layer_0.zip` and so on beside it."""

        @functools.cached_property
        def _shared(self) -> Path | None:
            if not os.path.basename(str(self.filename)).startswith("layer_"):
                return None
            return folder / hashlib.sha256(Path(str(self.filename)).read_bytes()).hexdigest()

        def namelist(self) -> list[str]:
            """For a look at each name, which the first unpacking had."""
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
