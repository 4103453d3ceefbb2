"""The commands of docs/security.md: what they call is what the API takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import boto3  # type: ignore[import-untyped]
from botocore import xform_name  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]

from synth.synthesis import ROOT, of_file

GUIDE = (ROOT / "docs" / "security.md").read_text("utf-8")
KEY = "arn:aws:kms:us-west-2:111122223333:key/0"
CLUSTER = "arn:aws:sagemaker:us-west-2:111122223333:cluster/abc"


def test_the_commands_encrypt_and_expire_hyperpods_own_log_group(tmp_path: Path) -> None:
    (block,) = [
        block for block in re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL) if "put-retention-policy" in block
    ]
    aws, log = tmp_path / "aws", tmp_path / "log"
    answers = f"case $2 in describe-cluster) echo {CLUSTER};; describe-stack-resources) echo 0;; describe-key) echo {KEY};; esac"
    aws.write_text(f'#!/bin/bash\nprintf "%s\\n" "$(printf "%s\\t" "$@")" >>"$LOG"\n{answers}\n', "utf-8")
    aws.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log)}
    subprocess.run(["bash", "-euc", block], env=environment, check=True)

    calls = [line.strip().split("\t") for line in log.read_text("utf-8").splitlines()]
    for service, command, *flags in calls:
        check(service, command, dict(zip(flags[::2], flags[1::2], strict=True)))
    group = "/aws/sagemaker/Clusters/llm-train/abc"
    assert calls[-2:] == [
        ["logs", "put-retention-policy", "--log-group-name", group, "--retention-in-days", "365"],
        ["logs", "associate-kms-key", "--log-group-name", group, "--kms-key-id", KEY],
    ]


def check(service: str, command: str, flags: dict[str, str]) -> None:
    """The operation is there, and takes these members."""
    model = boto3.client(service, region_name="us-west-2").meta.service_model
    (operation,) = (name for name in model.operation_names if xform_name(name, "-") == command)
    shape = model.operation_model(operation).input_shape
    members = {f"--{xform_name(name, '-')}": name for name in shape.members}
    given = {members[flag]: value for flag, value in flags.items() if flag not in ("--query", "--output")}
    typed = {name: int(value) if shape.members[name].type_name == "integer" else value for name, value in given.items()}
    assert not ParamValidator().validate(typed, shape).has_errors()


def test_the_foundation_has_one_key_and_logs_may_use_it() -> None:
    foundation = of_file(ROOT / "cluster.yaml")["hyperpod-llm-train-foundation"]
    ((_, key),) = foundation.of("AWS::KMS::Key").items()
    (logs,) = (item for item in key["Properties"]["KeyPolicy"]["Statement"] if item.get("Sid") == "Logs")
    assert "logs." in json.dumps(logs["Principal"])
    assert "kms:EncryptionContext:aws:logs:arn" in logs["Condition"]["ArnLike"]
