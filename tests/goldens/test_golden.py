"""Whole templates, kept as YAML files and read in review: `make golden` writes them again.

The hash of an asset's content is a placeholder in them. So a change of a script or of a function's code, which anyone
reads in that script or code, does not change the goldens too. helpers/review.py says what else is written in a shorter form.
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

from helpers import review
from helpers.slurm.process_list import PATTERNS
from helpers.synthesis import EXAMPLES, ROOT, Json, assembly_of_example, assembly_of_file, of_example, template_files

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


BASES = {MONITORED_FILE: (CLUSTER_FILE, "llm-train", "watched")}
"""A case that is shown as its difference to another case, and the names of both clusters."""


def without_content_hashes(template: str) -> str:
    for pattern, placeholder in CONTENT_HASHES.items():
        template = re.sub(pattern, placeholder, template)
    return template


def assembly(case: str) -> Path:
    return assembly_of_file(FILES[case]) if case in FILES else assembly_of_example(case)


def made(case: str) -> dict[str, str]:
    """The templates of a case as they are kept."""
    templates = parsed(case)
    if case not in BASES:
        return {name: written(template) for name, template in templates.items()}
    base, name_there, name_here = BASES[case]
    others = json.loads(json.dumps(parsed(base)).replace(name_there, name_here))
    head = f"# What is not as in {base}, where the cluster has the name {name_there}.\n"
    return {name: head + written(difference(templates[name], others[name])) for name in templates}


def parsed(case: str) -> dict[str, Json]:
    texts = template_files(assembly(case))
    return {name: json.loads(without_content_hashes(texts[name])) for name in texts if name in ONLY.get(case, texts)}


def written(template: Json) -> str:
    text = review.written(template)
    assert review.read(text) == template
    return text


def difference(template: Json, base: Json) -> Json:
    """All entries of each section that are new or have changed, and the names of those that only the base has."""
    found: Json = {}
    for section in base | template:
        ours, theirs = template.get(section), base.get(section)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            found[section] = {name: entry for name, entry in ours.items() if theirs.get(name) != entry}
            found[f"{section} that are missing"] = [name for name in theirs if name not in ours]
        elif ours != theirs:
            found[section] = ours if section in template else "is missing"
    return {section: shown for section, shown in found.items() if shown}


@pytest.mark.parametrize("case", CASES)
def test_templates_are_the_ones_that_were_reviewed(case: str) -> None:
    texts = made(case)
    folder = GOLDEN / case
    if os.environ.get("GOLDEN") == "write":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in texts.items():
            (folder / f"{name}.yaml").write_text(text, "utf-8")
    reviewed = {file.stem: file.read_text("utf-8") for file in folder.glob("*.yaml")}
    differences = [
        line
        for name in sorted(texts.keys() | reviewed.keys())
        for line in difflib.unified_diff(
            reviewed.get(name, "").splitlines(),
            texts.get(name, "").splitlines(),
            f"tests/goldens/templates/{case}/{name}.yaml",
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
    assert texts == reviewed, "the same lines and other bytes: line ends, or the end of the file"


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
    def kinds(templates: Iterable[Json]) -> set[str]:
        return {resource["Type"] for template in templates for resource in template["Resources"].values()}

    examples = (template.body for name in EXAMPLES for template in of_example(name).values())
    assert kinds(examples) <= kinds(template for case in CASES for template in parsed(case).values())


def test_no_golden_file_is_left_of_a_case_that_is_gone() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(CASES)
