"""Whole templates, kept as files and read in review: `make golden` writes them again.

The hash of an asset's content is a placeholder in them. So a change of a script or of a function's code, which anyone
reads in that script or code, does not change the goldens too.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from slurm.process_list import PATTERNS
from synth.synthesis import EXAMPLES, ROOT, assembly_of_example, assembly_of_file, template_files

GOLDEN = ROOT / "tests" / "golden"
CLUSTER_FILE = "cluster-yaml"
EKS_FILE = "eks-yaml"
FILES = {CLUSTER_FILE: ROOT / "cluster.yaml", EKS_FILE: ROOT / "tests" / "configs" / "eks.yaml"}
# The templates of a whole file under EKS are reviewed once.
CASES = [*FILES, *(name for name in EXAMPLES if name != "eks_from_one_file")]
CONTENT_HASHES = {r"[0-9a-f]{64}(?=\.zip)": "ASSET-HASH", r"(?<=lifecycle/)[0-9a-f]{16}\b": "SCRIPTS-HASH"}
"""Pattern of what is made from the content of files -> what a golden file has in its place."""


def without_content_hashes(template: str) -> str:
    for pattern, placeholder in CONTENT_HASHES.items():
        template = re.sub(pattern, placeholder, template)
    return template


def assembly(case: str) -> Path:
    return assembly_of_file(FILES[case]) if case in FILES else assembly_of_example(case)


@pytest.mark.parametrize("case", CASES)
def test_templates_are_the_ones_that_were_reviewed(case: str) -> None:
    made = {name: without_content_hashes(text) for name, text in template_files(assembly(case)).items()}
    folder = GOLDEN / case
    if os.environ.get("GOLDEN") == "write":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in made.items():
            (folder / f"{name}.template.json").write_text(text, "utf-8")
    reviewed = template_files(folder)
    differences = [
        line
        for name in sorted(made.keys() | reviewed.keys())
        for line in difflib.unified_diff(
            reviewed.get(name, "").splitlines(),
            made.get(name, "").splitlines(),
            f"tests/golden/{case}/{name}.template.json",
            "what is made now",
            lineterm="",
        )
    ]
    if differences:
        more = len(differences) - 100
        shown = differences[:100] + ([f"… and {more} lines more"] if more > 0 else [])
        pytest.fail(
            "\n".join([f"the templates of {case} changed; if that is meant, run `make golden` and commit", *shown]),
            pytrace=False,
        )
    assert made == reviewed, "the same lines and other bytes: line ends, or the end of the file"


def test_no_template_holds_a_secret() -> None:
    """Not by its form: a password's key, an access key, a token, a presigned URL, a private key."""
    shown = json.dumps({"MasterUserPassword": "open"}).encode()
    assert [name for name, pattern in PATTERNS.items() if re.search(pattern, shown)] == ["a password"]
    files = sorted(GOLDEN.rglob("*.json"))
    assert len(files) > 10
    found = [(file.name, name) for file in files for name in PATTERNS if re.search(PATTERNS[name], file.read_bytes())]
    assert found == []


def test_no_golden_file_is_left_of_a_case_that_is_gone() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(CASES)
