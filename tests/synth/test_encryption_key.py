"""The key of the foundation: whom its policy lets use it."""

from __future__ import annotations

import json

from synth.synthesis import ROOT, of_file


def test_the_foundation_has_one_key_and_logs_may_use_it() -> None:
    foundation = of_file(ROOT / "cluster.yaml")["hyperpod-llm-train-foundation"]
    ((_, key),) = foundation.of("AWS::KMS::Key").items()
    (logs,) = (item for item in key["Properties"]["KeyPolicy"]["Statement"] if item.get("Sid") == "Logs")
    assert "logs." in json.dumps(logs["Principal"])
    assert "kms:EncryptionContext:aws:logs:arn" in logs["Condition"]["ArnLike"]
