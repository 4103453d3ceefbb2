"""The function that uploads lifecycle scripts: what it writes, and that no event makes it write anything else."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import stat
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod._lambda.hyperpod.uploader import archive, handler
from cdk_hyperpod._lambda.hyperpod.uploader.content import content_hash, mark
from cdk_hyperpod._lambda.hyperpod.uploader.uploader import Uploader
from helpers.findings import codes
from helpers.foundation_guard import STACK, error

Json = Any
BUCKET = mark({"Ref": "Bucket"})
FILES = {
    "cluster.json": json.dumps({"cluster_name": "train", "drain": {"bucket": BUCKET}}).encode(),
    "on_create.sh": b"#!/bin/bash\n",
    "steps/20_slurm.py": b"print()\n" * 100,
}
HASH = content_hash(sorted(FILES.items()))
FILLED = {**FILES, "cluster.json": FILES["cluster.json"].replace(BUCKET.encode(), b'drain-\\"1\\"')}
ENVIRONMENT = {
    "ASSETS": "cdk-assets",
    "BUCKET": "sagemaker-scripts",
    "FOLDER": "lifecycle",
    "VALUES": json.dumps({BUCKET: 'drain-"1"'}),
}


def packed(files: dict[str, bytes] = FILES, more: Callable[[zipfile.ZipFile], object] | None = None) -> bytes:
    """A zip as CDK writes it, with its entries in any order."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in files.items():
            written.writestr(name, content)
        if more is not None:
            more(written)
    return body.getvalue()


@dataclass
class FakeS3:
    """Two buckets. Each error is raised by the first calls of that many."""

    asset: bytes = field(default_factory=packed)
    objects: dict[str, bytes] = field(default_factory=dict)
    """Written into the bucket of scripts, in this order."""
    errors: list[Exception] = field(default_factory=list)
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def get_object(self, *, Bucket: str, Key: str) -> Json:
        assert (Bucket, Key) == ("cdk-assets", "abc.zip")
        self._fail()
        return {"ContentLength": len(self.asset), "Body": io.BytesIO(self.asset)}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes | bytearray, ChecksumSHA256: str) -> None:
        assert Bucket == "sagemaker-scripts"
        self._fail()
        assert base64.b64decode(ChecksumSHA256) == hashlib.sha256(Body).digest()
        self.objects[Key] = bytes(Body)

    def head_object(self, *, Bucket: str, Key: str) -> None:
        assert Bucket == "sagemaker-scripts"
        if Key not in self.objects:
            raise error("403")

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def _pass(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def answer(self, request: Json) -> Json:
        uploader = Uploader(lambda: self, now=lambda: self.now, sleep=self._pass, log=lambda _: None)
        return handler.decide(request, uploader, ENVIRONMENT)


def event(kind: str = "Create", **properties: object) -> Json:
    return {
        "RequestType": kind,
        "StackId": STACK,
        "RequestId": "1",
        "LogicalResourceId": "Upload",
        "ResourceProperties": {"Hash": HASH, "Asset": "abc.zip", **properties},
    }


def reason(s3: FakeS3, request: Json) -> str:
    """Why the upload failed. Nothing was written."""
    reply = s3.answer(request)
    assert reply["Status"] == "FAILED"
    assert s3.objects == {}
    assert str(reply["Reason"]).isprintable()
    return str(reply["Reason"])


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_a_folder_is_written_under_the_hash_of_its_content_and_its_settings_last(kind: str) -> None:
    s3 = FakeS3(packed({"steps/": b"", **FILES}))
    assert s3.answer(event(kind)) == {
        "StackId": STACK,
        "RequestId": "1",
        "LogicalResourceId": "Upload",
        "PhysicalResourceId": "hyperpod-lifecycle-scripts",
        "Status": "SUCCESS",
    }
    assert s3.objects == {f"lifecycle/{HASH}/{name}": content for name, content in FILLED.items()}
    assert [*s3.objects][-1].endswith("/cluster.json")
    assert json.loads(FILLED["cluster.json"])["drain"]["bucket"] == 'drain-"1"'


def test_a_deletion_deletes_and_reads_nothing() -> None:
    s3 = FakeS3(errors=[error("AccessDenied")])
    reply = s3.answer({**event("Delete"), "PhysicalResourceId": "old", "ResourceProperties": {}})
    assert (reply["Status"], reply["PhysicalResourceId"], len(s3.errors)) == ("SUCCESS", "old", 1)


def test_an_event_decides_nothing_of_what_is_written() -> None:
    honest, forged = FakeS3(), FakeS3()
    honest.answer(event())
    lies = {
        "Values": {BUCKET: "mine"},
        "Bucket": "mine",
        "Folder": "lifecycle/other",
        "Prefix": "lifecycle/other",
        "DestinationBucketName": "mine",
        "DestinationBucketKeyPrefix": "lifecycle/other",
        "SourceMarkers": [{BUCKET: "mine"}],
        "Prune": "true",
        "RetainOnDelete": "false",
        "ServiceToken": "mine",
    }
    request = event("Update", **lies)
    forged.answer({**request, "OldResourceProperties": lies, "PhysicalResourceId": "lifecycle/other"})
    assert forged.objects == honest.objects


@pytest.mark.parametrize(
    "properties",
    [
        {"Hash": "../other"},
        {"Hash": HASH[:16]},
        {"Hash": HASH.upper()},
        {"Hash": f"{HASH}\n"},
        {"Hash": f"{HASH}/x"},
        {"Hash": [HASH]},
        {"Asset": "abc.json"},
        {"Asset": "a?versionId=1.zip"},
        {"Asset": {"a": "abc.zip"}},
        {"Asset": "\x1b.zip"},
    ],
)
def test_a_request_that_cdk_does_not_make_is_refused(properties: Json) -> None:
    assert codes(reason(FakeS3(), event(**properties))) == ["scripts-request-invalid"]


def link(written: zipfile.ZipFile) -> None:
    entry = zipfile.ZipInfo("steps/link")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    written.writestr(entry, "/etc/shadow")


def fifo(written: zipfile.ZipFile) -> None:
    entry = zipfile.ZipInfo("steps/pipe")
    entry.external_attr = stat.S_IFIFO << 16
    written.writestr(entry, "")


def zip64(asset: bytes) -> bytes:
    """With a second list of files, which `zipfile` prefers."""
    return asset[:-22] + b"PK\x06\x07" + bytes(16) + asset[-22:]


HOSTILE = {
    "a link": packed(more=link),
    "a pipe": packed(more=fifo),
    "a name that leads out": packed({**FILES, "../other/on_create.sh": b""}),
    "a name that leads out later": packed({**FILES, "steps/../../a": b""}),
    "no name": packed({**FILES, "aXb": b""}).replace(b"aXb", b"\0Xb"),
    "an absolute name": packed({**FILES, "/etc/passwd": b""}),
    "a name with backslashes": packed({**FILES, "..\\a": b""}),
    "a name that zipfile cuts": packed({**FILES, "aXb": b""}).replace(b"aXb", b"a\0b"),
    "two files of one name": packed({**FILES, "on_creatE.sh": b""}).replace(b"on_creatE", b"on_create"),
    "another content": packed({**FILES, "on_create.sh": b"reboot"}),
    "a file more": packed({**FILES, "steps/21.sh": b""}),
    "a file less": packed({name: content for name, content in FILES.items() if name != "on_create.sh"}),
    "another name": packed({"on_created.sh" if name == "on_create.sh" else name: each for name, each in FILES.items()}),
    "no zip": b"#!/bin/bash\n",
    "nothing": b"",
    "a cut zip": packed()[:-1],
    "a comment behind it": packed() + b"x",
    "a list of files elsewhere": zip64(packed()),
    "a broken file": packed().replace(packed()[60:70], bytes(10), 1),
}


@pytest.mark.parametrize("asset", HOSTILE.values(), ids=HOSTILE)
def test_an_asset_that_is_not_what_the_template_names_is_refused(asset: bytes) -> None:
    assert codes(reason(FakeS3(asset), event())) == ["scripts-asset-unsafe"]


@pytest.mark.parametrize("bound", ["MAX_BYTES", "MAX_FILES", "_MAX_DIRECTORY_BYTES"])
def test_an_asset_that_is_too_large_is_refused_before_it_is_unpacked(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = {"MAX_BYTES": sum(map(len, FILES.values())), "MAX_FILES": len(FILES)}.get(bound, 3 * 100)
    monkeypatch.setattr(archive, bound, size)
    assert FakeS3().answer(event())["Status"] == "SUCCESS"
    monkeypatch.setattr(archive, bound, size - 1 if bound != "_MAX_DIRECTORY_BYTES" else 100)
    monkeypatch.setattr(archive.Archive, "read", None)
    assert codes(reason(FakeS3(), event())) == ["scripts-asset-unsafe"]


def test_a_bomb_unpacks_no_more_than_it_declares() -> None:
    bomb = packed({**FILES, "on_create.sh": bytes(10_000_000)})
    entry = bomb.index(b"on_create.sh", bomb.index(b"PK\x01\x02")) - 46 + 24
    declared = bomb[:entry] + (12).to_bytes(4, "little") + bomb[entry + 4 :]
    assert codes(reason(FakeS3(declared), event())) == ["scripts-asset-unsafe"]


def test_settings_with_a_value_that_the_stack_does_not_know_are_refused() -> None:
    files = {**FILES, "cluster.json": mark("another").encode()}
    digest = content_hash(sorted(files.items()))
    assert codes(reason(FakeS3(packed(files)), event(Hash=digest))) == ["scripts-asset-unsafe"]
    no_settings = {"on_create.sh": b""}
    digest = content_hash(sorted(no_settings.items()))
    assert codes(reason(FakeS3(packed(no_settings)), event(Hash=digest))) == ["scripts-asset-unsafe"]


@pytest.mark.parametrize("problem", ["deleted", "changed", "not yet uploaded", "another value"])
def test_a_rollback_returns_to_a_folder_that_is_there_without_its_asset(problem: str) -> None:
    s3 = FakeS3()
    assert problem == "not yet uploaded" or s3.answer(event())["Status"] == "SUCCESS"
    before = dict(s3.objects)
    s3.asset = b"changed"
    s3.errors = [error("NoSuchKey")] if problem == "deleted" else []
    old = {"Hash": "0" * 64, "Values": {BUCKET: "another"} if problem == "another value" else {}}
    reply = s3.answer({**event("Update", Values={}), "OldResourceProperties": old})
    assert reply["Status"] == ("SUCCESS" if problem in ("deleted", "changed") else "FAILED")
    assert s3.objects == before


@pytest.mark.parametrize("name", ["AccessDenied", "SlowDown", "InternalError"])
def test_an_error_that_passes_delays_an_upload(name: str) -> None:
    failed = ClientError({"Error": {"Code": name}, "ResponseMetadata": {"HTTPStatusCode": 503}}, "PutObject")
    s3 = FakeS3(errors=[failed] * 3)
    assert s3.answer(event())["Status"] == "SUCCESS"
    assert len(s3.objects) == len(FILES)


def test_an_error_that_stays_fails_the_deployment_in_time() -> None:
    s3 = FakeS3(errors=[error("AccessDenied", "no\nkey")] * 1000)
    began = s3.now
    assert codes(reason(s3, event())) == ["scripts-not-uploaded"]
    assert s3.now - began < timedelta(minutes=4)
    s3 = FakeS3(errors=[error("NoSuchKey")])
    assert codes(reason(s3, event())) == ["scripts-not-uploaded"]
    assert s3.now == began


@given(
    st.dictionaries(st.text(min_size=1), st.binary(), max_size=4),
    st.dictionaries(st.text(min_size=1), st.binary(), max_size=4),
)
def test_other_content_has_another_hash(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    one, other = ({name.replace("\0", ""): each for name, each in files.items()} for files in (one, other))
    same = content_hash(sorted(one.items())) == content_hash(sorted(other.items()))
    assert same == (one == other)
