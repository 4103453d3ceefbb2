"""Loaded by every Python Lambda function of the engine: two paths of Lambda's own system, and the engine's faster time.

CDK's bucket deployment runs `/opt/awscli/aws`. The engine unpacks a layer into a folder of its own, and no program but
root's could put anything into the machine's /opt, so paths that begin with /opt are translated where a program is started.
The same function names the certificates of Amazon Linux, which do not know the engine's authority.

AWS's long waits pass faster here, so a function that gives up after an hour must see its hour pass as fast: what its own
code gets from datetime.now() goes on faster. Everyone else's (a request is signed with the time) is the machine's.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from typing import Any

_LAMBDA_CERTIFICATES = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
_start = subprocess.Popen.__init__


def _unpacked(argument: Any) -> Any:
    """The layer's file that Lambda would have at this path; anything else is left alone."""
    if not isinstance(argument, str) or not argument.startswith("/opt/"):
        return argument
    for layer in filter(None, os.environ.get("_LAMBDA_LAYERS_DIRS", "").split(os.pathsep)):
        path = os.path.join(layer, argument.removeprefix("/opt/"))
        if os.path.exists(path):
            return path
    return argument


def _started(self: Any, args: Any, *rest: Any, **options: Any) -> None:
    command = [_unpacked(part) for part in args] if isinstance(args, list | tuple) else args
    if isinstance(command, list) and command and _is_python_script(command[0]):
        # The script's own first line asks for whichever Python comes first on the PATH.
        command = [sys.executable, *command]
    _start(self, command, *rest, **options)


def _is_python_script(path: Any) -> bool:
    if not isinstance(path, str) or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        first = file.readline(100)
    return first.startswith(b"#!") and b"python" in first


class _IsDatetime(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _real_datetime)


class _FastDatetime(datetime.datetime, metaclass=_IsDatetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        now = _real_datetime.now(tz)
        if not sys._getframe(1).f_code.co_filename.startswith(_CODE):
            return now
        since = now - _real_datetime.fromtimestamp(float(os.environ["LOCAL_AWS_CLOCK_STARTS"]), tz)
        return now + since * (float(os.environ["LOCAL_AWS_CLOCK_SPEED"]) - 1)


_real_datetime = datetime.datetime
_CODE = os.path.join(os.getcwd(), "")  # a function starts in the folder of its code
if "LOCAL_AWS_CLOCK_SPEED" in os.environ:
    datetime.datetime = _FastDatetime  # type: ignore[misc]
if os.environ.get("AWS_CA_BUNDLE") == _LAMBDA_CERTIFICATES:
    import ssl

    _load = ssl.SSLContext.load_verify_locations

    def _loaded(self: Any, cafile: Any = None, *rest: Any, **options: Any) -> None:
        _load(self, os.environ["SSL_CERT_FILE"] if cafile == _LAMBDA_CERTIFICATES else cafile, *rest, **options)

    ssl.SSLContext.load_verify_locations = _loaded  # type: ignore[method-assign]
if "_LAMBDA_LAYERS_DIRS" in os.environ:
    subprocess.Popen.__init__ = _started  # type: ignore[method-assign]
