"""Programs that a Lambda function starts in the local AWS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from helpers.synthesis import ROOT

FUNCTION = """\
import subprocess
subprocess.check_call(["sh", "-c", "echo uploaded"])
print("answer " + subprocess.check_output(["sh", "-c", "echo read"], text=True).strip())
"""


def test_output_of_child_programs_is_in_the_log_and_never_in_the_answer_of_the_function(tmp_path: Path) -> None:
    """The engine gives up after 200 lines, and `aws s3 cp` of CDK's bucket deployment prints some three for each file."""
    path = ROOT / "local_aws/cdk_hyperpod_local/engine/lambda_path"
    environment = {**os.environ, "PYTHONPATH": str(path), "_LAMBDA_LAYERS_DIRS": str(tmp_path), "TMPDIR": str(tmp_path)}
    environment.pop("TEST_OUTDIR", None)
    done = subprocess.run([sys.executable, "-c", FUNCTION], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("answer read\n", "uploaded\n")
