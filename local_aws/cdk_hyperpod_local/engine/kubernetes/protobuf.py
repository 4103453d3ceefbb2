"""Reads the few objects that Helm and kubectl send as protocol buffers. Everything else is JSON.

Helm stores each release in a Secret, and writes it with Kubernetes' typed client, which supports no other encoding.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

Json = Any
CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"
# Field number -> name and type, from k8s.io/api/core/v1/generated.proto and similar files.
_METADATA = {
    1: ("name", "string"),
    2: ("generateName", "string"),
    3: ("namespace", "string"),
    6: ("resourceVersion", "string"),
    11: ("labels", "strings"),
    12: ("annotations", "strings"),
}
_FIELDS = {
    "Namespace": {},
    "Secret": {2: ("data", "blobs"), 3: ("type", "string")},
}


def decoded(content: bytes) -> Json:
    """The object in its JSON form. Raises ValueError."""
    if not content.startswith(_MAGIC):
        raise ValueError("no object of Kubernetes")
    envelope = dict(_fields(content.removeprefix(_MAGIC)))
    types = dict(_fields(envelope[1]))
    kind = types[2].decode()
    if kind not in _FIELDS:
        raise ValueError(f"{kind} as protocol buffers is not read here")
    raw = list(_fields(envelope[2]))
    metadata = _read([item for number, whole in raw if number == 1 for item in _fields(whole)], _METADATA)
    return {"apiVersion": types[1].decode(), "kind": kind, "metadata": metadata, **_read(raw, _FIELDS[kind])}


def _read(fields: list[tuple[int, bytes]], known: dict[int, tuple[str, str]]) -> Json:
    result: Json = {}
    for number, content in fields:
        name, kind = known.get(number, ("", ""))
        if kind == "string" and content:
            result[name] = content.decode()
        elif kind in ("strings", "blobs"):
            entry = dict(_fields(content))
            value = entry.get(2, b"")
            text = value.decode() if kind == "strings" else base64.b64encode(value).decode()
            result.setdefault(name, {})[entry[1].decode()] = text
    return result


def _fields(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Field number and content of the fields with a length. Numbers are skipped, because they are not needed here."""
    at = 0
    while at < len(content):
        tag, at = _number(content, at)
        match tag & 7:
            case 0:
                _, at = _number(content, at)
            case 1:
                at += 8
            case 2:
                length, at = _number(content, at)
                yield tag >> 3, content[at : at + length]
                at += length
            case 5:
                at += 4
            case other:
                raise ValueError(f"wire type {other}")


def _number(content: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = content[at]
        result |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return result, at
