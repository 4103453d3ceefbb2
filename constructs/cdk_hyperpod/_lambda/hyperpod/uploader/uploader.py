"""Copies one folder from CDK's bucket of assets to the bucket of scripts, under the hash of its content.

Whoever may invoke the function can repeat an upload, and nothing else. The event names an asset and a hash. The buckets, the
folder in the bucket, and the values that are known at deployment only come from the function's environment. So what is under a
prefix does not depend on who asked for it, and nothing is ever deleted.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO, Any, Protocol, TypeVar

from ..common import api
from ..kernel.refuse import Failure
from ..kernel.sentences import DENIED_HINT, fit
from ..kernel.text import one_line
from .archive import Archive, ArchiveError
from .content import HASH, MAX_BYTES, SETTINGS, content_hash, fill_in

T = TypeVar("T")

PATIENCE = timedelta(minutes=3)
"""Maximum wait of all calls together for errors that may pass. The function has five minutes."""
_ASSET = re.compile(r"[A-Za-z0-9._/-]{1,500}\.zip")
_CHUNK = 1_000_000


class UploadError(Exception):
    """Why an upload failed. Its text is the reason that CloudFormation shows."""


class S3(Protocol):
    """Exactly the calls of this package."""

    def get_object(self, *, Bucket: str, Key: str) -> Mapping[str, Any]: ...

    def head_object(self, *, Bucket: str, Key: str) -> object: ...

    def put_object(self, *, Bucket: str, Key: str, Body: bytes | bytearray, ChecksumSHA256: str) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the template says, in the function's environment."""

    assets: str
    """CDK's bucket of assets."""
    bucket: str
    """The bucket of the scripts."""
    folder: str
    """The prefix of all uploads in it, without a slash at its end."""
    values: Mapping[str, str]
    """The values that are known at deployment only, by mark."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """From the environment's variables, as the construct writes them."""
        return cls(
            assets=environment["ASSETS"],
            bucket=environment["BUCKET"],
            folder=environment["FOLDER"],
            values=json.loads(environment["VALUES"]),
        )


class Uploader:
    """The upload, with a client from outside."""

    def __init__(
        self,
        s3: Callable[[], S3],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
        log: Callable[[str], None] = print,
    ) -> None:
        self._s3 = s3
        self._now = now
        self._sleep = sleep
        self._log: Callable[[str], None] = lambda text: log(one_line(text))

    def upload(self, event: Mapping[str, Any], settings: Settings) -> None:
        """Upload the folder that the event names. Raises UploadError if that failed and the folder is not there.

        A rollback returns to a folder that is there. It must not fail if the asset was deleted or changed since.
        """
        try:
            self._copy(event["ResourceProperties"], settings)
        except UploadError as error:
            if not self._is_there(event, settings):
                raise
            self._log(f"was uploaded before, so this is no failure: {error}")

    def _is_there(self, event: Mapping[str, Any], settings: Settings) -> bool:
        """Whether an earlier upload of this folder was complete, and its values are the same."""
        properties, old = event["ResourceProperties"], event.get("OldResourceProperties")
        if not isinstance(old, Mapping) or old.get("Values") != properties.get("Values"):
            return False
        try:
            self._s3().head_object(Bucket=settings.bucket, Key=f"{settings.folder}/{properties['Hash']}/{SETTINGS}")
        except api.CALL_ERRORS:
            return False
        return True

    def _copy(self, properties: Mapping[str, Any], settings: Settings) -> None:
        wanted, asset = str(properties["Hash"]), str(properties["Asset"])
        if not re.fullmatch(HASH, wanted) or not _ASSET.fullmatch(asset):
            raise UploadError(
                Failure(
                    code="scripts-request-invalid",
                    problem="The request to upload lifecycle scripts names no hash or no asset, and nothing was uploaded",
                    remedy="deploy with the CDK CLI",
                )
            )
        prefix, began = f"{settings.folder}/{wanted}", self._now()
        try:
            with tempfile.TemporaryFile() as file:
                self._download(settings.assets, asset, file, began)
                archive = Archive(file)
                if content_hash(archive.files()) != wanted:
                    raise ArchiveError("does not have the content that the template names")
                self._write(archive, settings, prefix, began)
        except ArchiveError as error:
            raise UploadError(_unsafe(settings.assets, asset, error)) from error
        except api.CALL_ERRORS as error:
            raise UploadError(_failed(prefix, error)) from error

    def _download(self, bucket: str, key: str, file: IO[bytes], began: datetime) -> None:
        reply = self._patiently(lambda: self._s3().get_object(Bucket=bucket, Key=key), began)
        if int(reply["ContentLength"]) > MAX_BYTES:
            raise ArchiveError(f"has more than {MAX_BYTES:,} bytes")
        while chunk := reply["Body"].read(_CHUNK):
            file.write(chunk)

    def _write(self, archive: Archive, settings: Settings, prefix: str, began: datetime) -> None:
        names = archive.names()
        if SETTINGS not in names:
            raise ArchiveError(f"has no {SETTINGS}")
        try:
            filled = fill_in(archive.read(SETTINGS).decode(), settings.values).encode()
        except KeyError as error:
            raise ArchiveError("needs a value that this deployment does not have") from error
        for name in names:
            if name != SETTINGS:
                self._put(settings.bucket, f"{prefix}/{name}", archive.read(name), began)
        self._put(settings.bucket, f"{prefix}/{SETTINGS}", filled, began)

    def _put(self, bucket: str, key: str, body: bytes | bytearray, began: datetime) -> None:
        checksum = base64.b64encode(hashlib.sha256(body).digest()).decode()
        self._patiently(
            lambda: self._s3().put_object(Bucket=bucket, Key=key, Body=body, ChecksumSHA256=checksum), began
        )

    def _patiently(self, call: Callable[[], T], began: datetime) -> T:
        def until(error: Exception) -> datetime:
            return began + PATIENCE if api.is_passing(error, now=self._now(), began=began) else began

        return api.again(call, until, now=self._now, sleep=self._sleep, log=self._log)


def _unsafe(bucket: str, asset: str, error: ArchiveError) -> str:
    return str(
        Failure(
            code="scripts-asset-unsafe",
            problem=f"Asset {asset} in bucket {bucket} {error}, and nothing was uploaded",
            remedy="find out who wrote it, delete it, and deploy again, which uploads it again",
        )
    )


def _failed(prefix: str, error: Exception) -> str:
    failure = Failure(
        code="scripts-not-uploaded",
        problem=f"The lifecycle scripts could not be uploaded to {prefix}, which no node reads yet",
        remedy="find the cause, then deploy again",
    )
    return fit(failure.head, [api.reason(error), DENIED_HINT if api.is_denied(error) else failure.remedy])
