"""Loaded by every Python Lambda function of the engine: paths of Lambda's own system, and the engine's faster time.

CDK's bucket deployment runs `/opt/awscli/aws`, and its kubectl handler finds kubectl, helm and aws by a PATH of such
folders. The engine unpacks a layer into a folder of its own, and no program but root's could put anything into the
machine's /opt, so paths that begin with /opt are translated where a program is started.
The first of these functions names the certificates of Amazon Linux, which do not know the engine's authority.

On Lambda, /tmp and the home are the function's alone, so each has a folder for what it writes there: CDK's handler takes
it from TEST_OUTDIR; kubectl and helm keep their caches at home.

AWS's long waits pass faster here, so a function that gives up after an hour must see its hour pass as fast: what its own
code gets from datetime.now() and time.time() goes on faster, its time.sleep() ends as much earlier, and the clock jumps by what the
engine is told to skip (`control.py`).
Everyone else's (a request is signed with the time) is the machine's.

The real API server here is older than EKS's: it takes an eviction in the version of that time alone. The fields are the same.
"""

from __future__ import annotations

import datetime
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
    """The layer's file that Lambda would have at this path; anything else is left alone."""
    if not isinstance(argument, str) or not argument.startswith("/opt/"):
        return argument
    for layer in _layers():
        path = os.path.join(layer, argument.removeprefix("/opt/"))
        if os.path.exists(path):
            return path
    return argument


def _layers() -> list[str]:
    """Where their files lie: a function's folder has links to them, and compiled modules are found by the true path."""
    return [os.path.realpath(link) for link in os.environ.get("_LAMBDA_LAYERS_DIRS", "").split(os.pathsep) if link]


def _started(self: Any, args: Any, *rest: Any, **options: Any) -> None:
    environment = dict(options.get("env") or os.environ)
    path = environment.get("PATH", os.defpath).split(os.pathsep)
    if any(folder.startswith("/opt/") for folder in path):
        path = [os.path.join(os.environ["HOME"], "bin"), *map(_unpacked, path)]
    environment["PATH"] = os.pathsep.join(path)
    options["env"] = environment
    command = [_unpacked(part) for part in args] if isinstance(args, list | tuple) else args
    if isinstance(command, list) and command and isinstance(command[0], str):
        command[0] = shutil.which(command[0], path=environment["PATH"]) or command[0]
        if _is_python_script(command[0]):
            # The script's own first line asks for Lambda's Python.
            command = [sys.executable, *command]
    _start(self, command, *rest, **options)


def _is_python_script(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        first = file.readline(100)
    return first.startswith(b"#!") and b"python" in first


def _make_home() -> None:
    """What the function may write to, with the layers' Python scripts as programs that other programs can start.

    The engine's unpacking loses who may execute what.
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
    """By how many seconds the function's clock is ahead of the machine's."""
    since = now - float(os.environ["LOCAL_AWS_CLOCK_STARTS"])
    return since * (float(os.environ["LOCAL_AWS_CLOCK_SPEED"]) - 1) + _skipped()


def _skipped() -> float:
    try:
        with open(os.environ["LOCAL_AWS_CLOCK_SKIPS"]) as file:
            return float(file.read())
    except FileNotFoundError:
        return 0.0


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
    if "TEST_OUTDIR" not in os.environ:  # else this is a program that the function started
        _make_home()
    subprocess.Popen.__init__ = _started  # type: ignore[method-assign]
