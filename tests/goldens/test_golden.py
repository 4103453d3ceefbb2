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
from collections.abc import Iterable
from pathlib import Path

import pytest

from helpers.slurm.process_list import PATTERNS
from helpers.synthesis import EXAMPLES, ROOT, assembly_of_example, assembly_of_file, template_files, templates_in

GOLDEN = ROOT / "tests" / "goldens" / "templates"
CLUSTER_FILE = "cluster-yaml"
EKS_FILE = "eks-yaml"
ADD_ONS_FILE = "eks_add_ons-yaml"
MONITORED_FILE = "monitored-yaml"
FILES = {
    CLUSTER_FILE: ROOT / "cluster.yaml",
    EKS_FILE: ROOT / "tests" / "helpers" / "configs" / "eks.yaml",
    ADD_ONS_FILE: ROOT / "tests" / "helpers" / "configs" / "eks_add_ons.yaml",
    MONITORED_FILE: ROOT / "tests" / "helpers" / "configs" / "monitored.yaml",
}
CASES = [*FILES, "eks_cluster", "elastic_training"]
"""Few whole cases, which together have every resource type: what the other examples differ in, their own tests assert."""
ONLY = {ADD_ONS_FILE: {"hyperpod-added-teams"}}
"""The stacks of a case, if the others are like those of another case."""
CONTENT_HASHES = {r"[0-9a-f]{64}(?=\.zip)": "ASSET-HASH", r"\b[0-9a-f]{64}\b(?!\.zip)": "SCRIPTS-HASH"}
"""Pattern of what is made from the content of files -> what a golden file has in its place."""


def without_content_hashes(template: str) -> str:
    for pattern, placeholder in CONTENT_HASHES.items():
        template = re.sub(pattern, placeholder, template)
    return template


def assembly(case: str) -> Path:
    return assembly_of_file(FILES[case]) if case in FILES else assembly_of_example(case)


@pytest.mark.parametrize("case", CASES)
def test_templates_are_the_ones_that_were_reviewed(case: str) -> None:
    templates = template_files(assembly(case))
    made = {name: without_content_hashes(templates[name]) for name in templates if name in ONLY.get(case, templates)}
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
            f"tests/goldens/templates/{case}/{name}.template.json",
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
    folders = [*map(assembly_of_file, FILES.values()), *map(assembly_of_example, EXAMPLES)]
    files = [file for folder in folders for file in folder.glob("*.template.json")]
    assert len(files) > 10
    found = [(file.name, name) for file in files for name in PATTERNS if re.search(PATTERNS[name], file.read_bytes())]
    assert found == []


def test_the_goldens_have_every_resource_type_of_the_examples() -> None:
    def kinds(folders: Iterable[Path]) -> set[str]:
        templates = (template for folder in folders for template in templates_in(folder).values())
        return {resource["Type"] for template in templates for resource in template.resources.values()}

    assert kinds(map(assembly_of_example, EXAMPLES)) <= kinds(GOLDEN.iterdir())


def test_no_golden_file_is_left_of_a_case_that_is_gone() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(CASES)
