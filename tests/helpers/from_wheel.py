"""The wheel, and an environment with the library from it, for tests outside of the clone."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as `make wheel` builds it."""
    folder = tmp_path_factory.mktemp("dist")
    hatchling = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(hatchling, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new virtual environment with the wheel. This environment provides all other packages."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    uv = str(ROOT / ".tools" / "bin" / "uv")
    subprocess.run([uv, "venv", "--quiet", "--offline", "--python", sys.executable, str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, str(wheel)], check=True
    )
    # .pth files are not read in a folder that another .pth file names, so the editable installation is not visible.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shared = folder / "lib" / version / "site-packages" / "shared.pth"
    shared.write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return folder / "bin"


def run(*command: str | Path, cwd: Path, code: int = 0, stdin: int | None = None, **more: str) -> str:
    """The output of a command in an environment without any path of the checkout, with its errors if it fails. `code`: its
    expected exit code."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**inherited, **more},
        stdin=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr if code == 1 else done.stdout
