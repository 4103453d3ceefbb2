"""Watch the processes of a node, for tests: what stands in their arguments and in their environments.

    python3 process_list.py SECRETS ENOUGH

Run on the node as root, so that it reads more than any user may. SECRETS: a file with {"name": "its bytes in hex"}. It looks
at all processes again and again, tells `watching` once it has looked, and ends when there is a file ENOUGH. Then it prints
{"found": {what and where: the process}, "seen": [every command line]}. What lives for a millisecond it may miss. The standard
library only.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

PATTERNS = {
    "a presigned URL": rb"X-Amz-(Signature|Security-Token|Credential)=",
    "a signature": rb"AWS4-HMAC-SHA256",
    "a JSON Web Token": rb"\beyJ[\w-]{8,}\.[\w-]{8,}\.",
    "a token of EKS": rb"k8s-aws-v1\.",
    "a bearer token": rb"(?i)bearer [\w.-]{8,}",
    "an access key": rb"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    "a private key": rb"PRIVATE KEY",
    "a password": rb"(?i)(password|passwd|storagepass|secret_access_key|session_token)=?[^\s\0]*[=\0 ][^\s\0]",
}
"""What nobody has to know by its value."""


def forms(secret: bytes) -> tuple[bytes, ...]:
    """How somebody might write it."""
    return (secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"="))


def look(secrets: Mapping[str, tuple[bytes, ...]], found: dict[str, str], seen: dict[str, None]) -> None:
    """One look at all processes but this one."""
    for pid in os.listdir("/proc"):
        if not pid.isdecimal() or int(pid) == os.getpid():
            continue
        try:
            read = {name: Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")}
        except OSError:  # it has ended
            continue
        command = read["cmdline"].replace(b"\0", b" ").decode(errors="replace").strip()
        if command:
            seen[command] = None
        for where, text in read.items():
            for name, written in secrets.items():
                if any(form in text for form in written):
                    found[f"{name} in {where}"] = command
            for name, pattern in PATTERNS.items():
                if re.search(pattern, text):
                    found[f"{name} in {where}"] = command


def main(secrets_file: str, enough: str) -> None:
    secrets = {name: forms(bytes.fromhex(text)) for name, text in json.loads(Path(secrets_file).read_text()).items()}
    found: dict[str, str] = {}
    seen: dict[str, None] = {}
    look(secrets, found, seen)
    print("watching", flush=True)
    while not os.path.exists(enough):
        look(secrets, found, seen)
        time.sleep(0.002)
    print(json.dumps({"found": found, "seen": list(seen)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
