"""The README and the pages as somebody reads them: files that load, code that synthesizes, an index that is complete."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.loader import load_config
from helpers.repository import tracked

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("examples/*/*.md"))]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_files_of_the_readme_load(tmp_path: Path) -> None:
    whole, *parts = [yaml.safe_load(block) for block in blocks("yaml")]
    for part in [{}, *parts]:
        file = {**whole, **part}
        # A part shows the groups that it changes; the others stay.
        changed = {group["name"]: group for group in file["instance_groups"]}
        file["instance_groups"] = [changed.get(group["name"], group) for group in whole["instance_groups"]]
        path = tmp_path / "cluster.yaml"
        path.write_text(yaml.safe_dump(file), "utf-8")
        assert load_config(path).config.name == "llm-train"


def test_no_page_installs_the_package_by_name_before_it_is_on_pypi() -> None:
    """Until the first release, the package's name on PyPI is free. A wheel's name has an underscore."""
    by_name = re.compile(
        r"(?:install|add|sync)\b[^\n]*[\s'\"]cdk-hyperpod(?:\[[a-z]+\])?(?=['\"\s=]|$)|^cdk-hyperpod(\[[a-z]+\])?=="
    )
    told = [
        f"{path}: {line}"
        for path in tracked(".md", ".py", ".yml", ".yaml", ".txt", ".mk")
        if not path.is_relative_to(ROOT / "tests")
        for line in path.read_text("utf-8").splitlines()
        if by_name.search(line)
    ]
    assert told == []


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_query_for_what_endpoints_refused_reads_files_of_cloudtrail(tmp_path: Path) -> None:
    event = {
        "eventSource": "s3.amazonaws.com",
        "eventName": "PutObject",
        "errorCode": "VpceAccessDenied",
        "userIdentity": {"accountId": "777788889999"},
        "vpcEndpointId": "vpce-0a",
    }
    ours = {**event, "requestParameters": {"bucketName": "agents\x1b"}}
    (tmp_path / "trail").mkdir()
    for name, content in {"a": {"Records": [ours, event, ours, {"eventName": "GetObject"}]}, "digest": {}}.items():
        (tmp_path / "trail" / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    page = (ROOT / "docs" / "closed-networks.md").read_text("utf-8")
    (query,) = re.findall(r"^find trail .*?(?=^```$)", page, re.MULTILINE | re.DOTALL)
    done = subprocess.run(["bash", "-c", query], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line.strip() for line in done.stdout.splitlines()] == [
        '2 ["vpce-0a","s3.amazonaws.com","PutObject","agents\\u001b","777788889999"]',
        '1 ["vpce-0a","s3.amazonaws.com","PutObject",null,"777788889999"]',
    ]


def test_the_code_of_the_readme_synthesizes(tmp_path: Path) -> None:
    (code,) = blocks("python")
    # A process of its own: CDK's Node reads the environment once.
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "CDK_OUTDIR": str(tmp_path)}, cwd=tmp_path, check=True
    )
    assert "AWS::SageMaker::Cluster" in (tmp_path / "Training.template.json").read_text("utf-8")


def test_the_commands_of_the_readme_exist() -> None:
    makefiles = "\n".join(path.read_text("utf-8") for path in [ROOT / "Makefile", *ROOT.glob("[a-z]*/**/*.mk")])
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))
    assert named >= {"synth", "test", "deploy-local"}
    assert not {name for name in named if not re.search(rf"^{name}\b.*:", makefiles, re.MULTILINE)}


def test_a_new_app_is_begun_with_commands_that_exist_and_the_cli_that_is_pinned() -> None:
    (block,) = re.findall(r"^```\n(wheel=.*?)^```$", README, re.MULTILINE | re.DOTALL)
    pinned = json.loads((ROOT / "package.json").read_text("utf-8"))["devDependencies"]["aws-cdk"]
    assert re.findall(r"aws-cdk@(\S+)", block) == [pinned]
    named = set(re.findall(r"`?cdk-hyperpod ([a-z]+)", README + block)) - {"and"}
    tool = Path(sys.executable).with_name("cdk-hyperpod")
    help_text = subprocess.run([tool, "--help"], capture_output=True, text=True, check=True).stdout
    assert named >= {"init", "check", "plan", "retained"}
    assert not {name for name in named if not re.search(rf"^ +{name}\b", help_text, re.MULTILINE)}


def test_the_index_has_every_page_and_example() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    pages = [page for page in PAGES if page.parent == ROOT / "docs" or "examples" in page.parts]
    assert len(pages) > 15
    missing = {page for page in pages if f"]({os.path.relpath(page, ROOT / 'docs')})" not in index}
    assert missing == {ROOT / "docs" / "README.md"}
