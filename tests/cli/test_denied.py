"""What endpoints refused, out of files as CloudTrail writes them."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from cdk_hyperpod.cli import denied
from cdk_hyperpod.cli.main import main

FOREIGN: dict[str, Any] = {
    "eventSource": "s3.amazonaws.com",
    "eventName": "PutObject",
    "errorCode": "VpceAccessDenied",
    "eventCategory": "NetworkActivity",
    "userIdentity": {"type": "AWSAccount", "accountId": "777788889999"},
    "vpcEndpointId": "vpce-0a",
}
OURS: dict[str, Any] = {
    **FOREIGN,
    "eventName": "GetObject",
    "userIdentity": {"type": "AssumedRole", "accountId": "111122223333"},
    "requestParameters": {"bucketName": "agents-of-aws", "key": "agent"},
}


def write(path: Path, *events: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"Records": events}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def test_it_names_the_endpoint_and_the_bucket_that_were_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "2026" / "a.json.gz", OURS, OURS, {**OURS, "errorCode": "AccessDenied"})
    write(tmp_path / "b.json", FOREIGN, {"eventName": "GetObject"})
    assert main(["denied", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        "times  endpoint  call          on             by account\n"
        "2      vpce-0a   s3:GetObject  agents-of-aws  111122223333\n"
        "1      vpce-0a   s3:PutObject  not told       777788889999\n"
    )


def test_nothing_was_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["denied", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: no endpoint refused anything in these files\n"


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b'{"Records": [1]}', b'{"Records": []} {}', b"\x1f\x8b", b'{"Records": null}', b"[" * 100_000),
        *(
            json.dumps({"Records": [{**OURS, **wrong}]}).encode()
            for wrong in ({"requestParameters": "x"}, {"userIdentity": "x"}, {"resources": [1]})
        ),
    ],
    ids=lambda content: str(content[-40:]),
)
@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_other_files_are_refused_in_one_line(
    content: bytes, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # As it is, and packed, where it is not broken as a file of gzip already.
    packed = name.endswith(".gz") and len(content) > 2
    (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
    assert main(["denied", str(tmp_path)]) == 1
    assert (
        capsys.readouterr().err
        == f"{tmp_path / name}: is not a file of CloudTrail; keep such files alone in the folder\n"
    )


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_file_that_takes_all_memory_is_not_unpacked(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / name, *[OURS] * 1000)
    monkeypatch.setattr(denied, "MAX_BYTES", 10_000)
    assert main(["denied", str(tmp_path)]) == 1
    assert "is not a file of CloudTrail" in capsys.readouterr().err


DIGEST = b'{"digestS3Bucket": "trail", "logFiles": []}'


@pytest.mark.parametrize("content", [DIGEST, b'{"configurationItems": []}', b"[]", b"1"])
def test_json_without_events_is_passed_over(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The trail's digests, and what other services write to the same bucket."""
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(content))
    (tmp_path / "z.json").write_bytes(content)
    assert main(["denied", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"{tmp_path}: no file there has events of CloudTrail, which stand under Records; copy the trail's files there "
        "(docs/deploying.md)\n"
    )
    write(tmp_path / "events.json", OURS)
    assert main(["denied", str(tmp_path)]) == 0
    assert "s3:GetObject" in capsys.readouterr().out


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["denied", str(tmp_path / "none")]) == 1
    assert "is not a folder; copy the trail's files there" in capsys.readouterr().err


def test_what_the_refused_caller_chose_cannot_write_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.json", {**OURS, "requestParameters": {"bucketName": "x\u001b[2J\nvpce-9"}})
    assert main(["denied", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert len(told.splitlines()) == 2


def test_a_pipe_in_the_folder_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "a.json", OURS)
    os.mkfifo(tmp_path / "b.json")
    assert main(["denied", str(tmp_path)]) == 0
