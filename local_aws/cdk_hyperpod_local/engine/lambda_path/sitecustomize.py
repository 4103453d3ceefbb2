"""Loaded by every Python Lambda function of the engine: translates Lambda's own paths, and speeds up its clock.

CDK's bucket deployment runs `/opt/awscli/aws`, and its kubectl handler finds kubectl, helm and aws through a PATH of
such folders. The engine unpacks a layer into its own folder, and only root could write to the machine's /opt. So paths
below /opt are translated when a program is started. CDK's bucket deployment also names the certificates of Amazon
Linux, which do not contain the engine's authority.

What a program of the function prints is part of the function's log. The engine reads the function's answer from its standard output,
among at most 200 lines, and the bucket deployment's `aws s3 cp` prints some three for each file.

On Lambda, /tmp and the home folder belong to one function, so each function gets folders for both. CDK's handler reads
TEST_OUTDIR; kubectl and helm keep their caches in the home folder.

AWS's long waits pass faster here, so a function that gives up after an hour must see its hour pass as fast. In the
function's own code, datetime.now() and time.time() run faster, time.sleep() ends earlier, and the clock also moves by
what the engine skips (`control.py`). Other code, such as the signing of requests, sees the machine's time.

The real API server here is older than EKS's. It supports evictions only in that time's version, with the same fields, and it
lacks kinds. kubectl is not started for a manifest of such kinds alone.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

_LAMBDA_CERTIFICATES = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
_start = subprocess.Popen.__init__


def _unpacked(argument: Any) -> Any:
    """The layer's file for a path on Lambda. Any other path is unchanged."""
    if not isinstance(argument, str) or not argument.startswith("/opt/"):
        return argument
    for layer in _layers():
        path = os.path.join(layer, argument.removeprefix("/opt/"))
        if os.path.exists(path):
            return path
    return argument


def _layers() -> list[str]:
    """The real folders of the layers: a function's folder has links to them, and compiled modules are found by the real
    path."""
    return [os.path.realpath(link) for link in os.environ.get("_LAMBDA_LAYERS_DIRS", "").split(os.pathsep) if link]


def _started(self: Any, args: Any, *rest: Any, **options: Any) -> None:
    environment = dict(options.get("env") or os.environ)
    path = environment.get("PATH", os.defpath).split(os.pathsep)
    if any(folder.startswith("/opt/") for folder in path):
        path = [os.path.join(os.environ["HOME"], "bin"), *map(_unpacked, path)]
    environment["PATH"] = os.pathsep.join(path)
    options["env"] = environment
    if _IS_FUNCTION and options.get("stdout") is None:
        options["stdout"] = sys.stderr
    command = [_unpacked(part) for part in args] if isinstance(args, list | tuple) else args
    if isinstance(command, list) and command and isinstance(command[0], str):
        command = _without_missing_kinds(command)
        command[0] = shutil.which(command[0], path=environment["PATH"]) or command[0]
        if _is_python_script(command[0]):
            # The script's own first line names Lambda's Python.
            command = [sys.executable, *command]
    _start(self, command, *rest, **options)


def _without_missing_kinds(command: list[Any]) -> list[Any]:
    """A command that succeeds in place of kubectl's, if its manifest has only kinds that the API server lacks."""
    missing = {*filter(None, os.environ.get("LOCAL_AWS_MISSING_KINDS", "").split(","))}
    if not missing or os.path.basename(command[0]) != "kubectl" or "-f" not in command[:-1]:
        return command
    kinds = _kinds_in(command[command.index("-f") + 1])
    if not kinds or not kinds <= missing:
        return command
    return [sys.executable, "-c", f"print('not sent, since this Kubernetes has no', {', '.join(sorted(kinds))!r})"]


def _kinds_in(path: str) -> set[str]:
    """The kinds of the objects in a file of CDK's handler, which writes JSON objects one after the other."""
    with open(path) as file:
        text = file.read()
    kinds: set[str] = set()
    end = 0
    while end < len(text):
        try:
            value, end = json.JSONDecoder().raw_decode(text, end)
        except ValueError:
            return set()
        kinds.add(str(value.get("kind")) if isinstance(value, dict) else "")
    return kinds


def _is_python_script(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        first = file.readline(100)
    return first.startswith(b"#!") and b"python" in first


def _make_home() -> None:
    """Create the folders that the function may write to, and make the layers' Python scripts executable for other
    programs.

    The engine's unpacking loses the permission to execute.
    """
    home = tempfile.mkdtemp(prefix="function-")
    os.environ.update({"HOME": home, "XDG_CACHE_HOME": home, "TEST_OUTDIR": home})
    programs = os.path.join(home, "bin")
    os.mkdir(programs)
    for layer in _layers():
        for folder in filter(os.path.isdir, (entry.path for entry in os.scandir(layer))):
            for file in filter(os.path.isfile, (entry.path for entry in os.scandir(folder))):
                os.chmod(file, 0o700)
                if _is_python_script(file):
                    program = os.path.join(programs, os.path.basename(file))
                    with open(program, "w", opener=_executable) as text:
                        text.write(f'#!/bin/sh\nexec "{sys.executable}" "{file}" "$@"\n')


def _executable(path: str, flags: int) -> int:
    return os.open(path, flags, 0o700)


class _IsDatetime(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _real_datetime)


class _FastDatetime(datetime.datetime, metaclass=_IsDatetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        now = _real_datetime.now(tz)
        if not sys._getframe(1).f_code.co_filename.startswith(_CODE):
            return now
        return now + datetime.timedelta(seconds=_ahead(now.timestamp()))


def _fast_time() -> float:
    now = _real_time()
    return now + _ahead(now) if sys._getframe(1).f_code.co_filename.startswith(_CODE) else now


def _fast_sleep(seconds: float) -> None:
    if sys._getframe(1).f_code.co_filename.startswith(_CODE):
        seconds /= float(os.environ["LOCAL_AWS_CLOCK_SPEED"])
    _real_sleep(seconds)


def _ahead(now: float) -> float:
    """How many seconds the function's clock is ahead of the machine's."""
    since = now - float(os.environ["LOCAL_AWS_CLOCK_STARTS"])
    return since * (float(os.environ["LOCAL_AWS_CLOCK_SPEED"]) - 1) + _skipped()


def _skipped() -> float:
    try:
        with open(os.environ["LOCAL_AWS_CLOCK_SKIPS"]) as file:
            return float(file.read())
    except FileNotFoundError:
        return 0.0


_IS_FUNCTION = "TEST_OUTDIR" not in os.environ
"""False: this is a program that a function has started."""
_real_datetime = datetime.datetime
_real_time = time.time
_real_sleep = time.sleep
_CODE = os.path.join(os.getcwd(), "")  # a function starts in the folder of its code
if "LOCAL_AWS_CLOCK_SPEED" in os.environ:
    datetime.datetime = _FastDatetime  # type: ignore[misc]
    time.time = _fast_time
    time.sleep = _fast_sleep  # type: ignore[assignment]
if os.environ.get("AWS_CA_BUNDLE") == _LAMBDA_CERTIFICATES:
    import ssl

    _load = ssl.SSLContext.load_verify_locations

    def _loaded(self: Any, cafile: Any = None, *rest: Any, **options: Any) -> None:
        _load(self, os.environ["SSL_CERT_FILE"] if cafile == _LAMBDA_CERTIFICATES else cafile, *rest, **options)

    ssl.SSLContext.load_verify_locations = _loaded  # type: ignore[method-assign]
if "LOCAL_AWS_EVICTIONS" in os.environ:
    import http.client

    _request = http.client.HTTPConnection.request

    def _requested(self: Any, method: str, url: str, body: Any = None, *rest: Any, **options: Any) -> None:
        if method == "POST" and url.partition("?")[0].endswith("/eviction") and isinstance(body, bytes):
            body = body.replace(b'"policy/v1"', b'"' + os.environ["LOCAL_AWS_EVICTIONS"].encode() + b'"')
        _request(self, method, url, body, *rest, **options)

    http.client.HTTPConnection.request = _requested  # type: ignore[method-assign]
if "_LAMBDA_LAYERS_DIRS" in os.environ:
    if _IS_FUNCTION:
        _make_home()
    subprocess.Popen.__init__ = _started  # type: ignore[method-assign]
