"""Loaded by every Python Lambda function of the engine: the two paths of Lambda's own system that CDK's handlers use.

CDK's bucket deployment runs `/opt/awscli/aws`. The engine unpacks a layer into a folder of its own, and no program but
root's could put anything into the machine's /opt, so paths that begin with /opt are translated where a program is started.
The same function names the certificates of Amazon Linux, which do not know the engine's authority.
"""

from __future__ import annotations

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


if os.environ.get("AWS_CA_BUNDLE") == _LAMBDA_CERTIFICATES:
    import ssl

    _load = ssl.SSLContext.load_verify_locations

    def _loaded(self: Any, cafile: Any = None, *rest: Any, **options: Any) -> None:
        _load(self, os.environ["SSL_CERT_FILE"] if cafile == _LAMBDA_CERTIFICATES else cafile, *rest, **options)

    ssl.SSLContext.load_verify_locations = _loaded  # type: ignore[method-assign]
if "_LAMBDA_LAYERS_DIRS" in os.environ:
    subprocess.Popen.__init__ = _started  # type: ignore[method-assign]
