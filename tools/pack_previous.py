#!/usr/bin/env python3
"""Pack the cloud assembly that another version of this repository makes, for tests/deployments/test_upgrade.py.

    .venv/bin/python tools/pack_previous.py v0.1.0

Run it after each release, with the release's tag. It builds the wheel of that commit, synthesizes
tests/deployments/previous_wheel/cluster.yaml with it, and writes assembly.tar.xz and VERSION beside that file. Library and
templates are those of the commit, and the other packages are those of this checkout. The same commit and packages give the
same bytes.

Left out is what no deployment reads, and the layers that CDK's packages bring, which are 20 MB each. The test takes the
layers from its own assembly.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "deployments" / "previous_wheel"
APP = """\
import sys
from pathlib import Path

from aws_cdk import App

from cdk_hyperpod import load_config
from cdk_hyperpod.stacks import add_stacks

app = App(outdir=sys.argv[2], analytics_reporting=False, stack_traces=False)
add_stacks(app, load_config(Path(sys.argv[1])))
app.synth()
"""
UNREAD = ("tree.json", "validation-report.json", "asset.*.zip", "cdk-hyperpod-lifecycle", "cdk-hyperpod-scripts")
"""Patterns of files and folders at the top of an assembly."""


def main() -> int:
    """Pack the version that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref", help="a tag or commit of this repository, such as v0.1.0")
    ref = parser.parse_args().ref
    commit = _git("rev-parse", "--verify", f"{ref}^{{commit}}").decode().strip()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = _install(_wheel(commit, folder), folder / "venv")
        assembly = _synthesize(python, folder / "cdk.out")
        (FOLDER / "assembly.tar.xz").write_bytes(_packed(assembly))
    (FOLDER / "VERSION").write_text(f"{commit}\n", "utf-8")
    return 0


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def _wheel(commit: str, folder: Path) -> Path:
    """Build the wheel of the commit."""
    source = folder / "source"
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as archive:
        archive.extractall(source, filter="data")
    hatchling = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(hatchling, cwd=source, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _install(wheel: Path, folder: Path) -> Path:
    """The interpreter of a new environment with the wheel, and with the other packages of this one."""
    uv, python = str(ROOT / ".tools" / "bin" / "uv"), folder / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--offline", "--python", sys.executable, str(folder)], check=True)
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True)
    # .pth files are not read in a folder that another .pth file names, so this checkout's own library is not visible.
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return python


def _synthesize(python: Path, outdir: Path) -> Path:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(python), "-c", APP, str(FOLDER / "cluster.yaml"), str(outdir)]
    subprocess.run(command, cwd=outdir.parent, env=environment, check=True)
    return outdir


def _packed(assembly: Path) -> bytes:
    """The files of the assembly that a deployment reads, in one order and without times and owners."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:xz", preset=9) as archive:
        for path in sorted(assembly.rglob("*")):
            name = path.relative_to(assembly)
            if path.is_dir() or any(fnmatch(name.parts[0], pattern) for pattern in UNREAD):
                continue
            entry = tarfile.TarInfo(name.as_posix())
            entry.size = path.stat().st_size
            entry.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    return written.getvalue()


if __name__ == "__main__":
    sys.exit(main())
