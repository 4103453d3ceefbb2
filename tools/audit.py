"""Runs security scanners, and fails for each finding that has no reason in the baseline.

The baseline is tools/audit_baseline.yaml: tool, rule, place (a file or `template:resource`, as a name pattern) and
reason. An entry that matches no finding is an error too, because it would hide a later finding.
"""

from __future__ import annotations

import fnmatch
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

# `make audit` runs this file, and a test imports it. Both must find the modules beside it.
ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from tools.make_bootstrap_policy import synthesize

BIN = ROOT / ".audit" / "venv" / "bin"
BASELINE = ROOT / "tools" / "audit_baseline.yaml"
CODE = ("app.py", "constructs", "local_aws", "stacks", "lifecycle", "tools", "examples")
"""The code that runs: on the user's machine, on nodes, in functions. Tests run only on what they create."""
NO_SECRETS = (
    r"\.lock$|package-lock\.json$|^tests/goldens/templates/|^constructs/cdk_hyperpod/facts/instance_types\.json$"
)
"""Hashes, and templates made from code that is scanned itself. Every long name in them looks like a secret."""


@dataclass(frozen=True, order=True, slots=True)
class Found:
    """One finding of a tool."""

    tool: str
    rule: str
    where: str
    text: str


def main() -> int:
    """Print new findings and unused entries. Returns 1 if there are any."""
    baseline: list[dict[str, str]] = yaml.safe_load(BASELINE.read_text("utf-8"))
    with ThreadPoolExecutor(max_workers=2) as pool:
        parts: Iterable[list[Found]] = pool.map(list, (bandit(), zizmor(), actionlint(), secrets(), checkov()))
        found = sorted(item for part in parts for item in part)
    lines = list(problems(found, baseline))
    print("\n".join([*lines, f"audit: {len(found)} findings, {len(baseline)} reasons"]))
    return 1 if lines else 0


def problems(found: Sequence[Found], baseline: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """A line for each finding without an entry, and for each entry without a reason or a finding."""
    new = [item for item in found if not any(_is(entry, item) for entry in baseline)]
    for item in new:
        yield f"{item.where}: {item.tool} {item.rule}: {item.text}"
    if new:
        yield "Fix these findings, or add each to tools/audit_baseline.yaml with a reason that a reviewer accepts."
    for entry in baseline:
        name = f"audit_baseline.yaml: {entry['tool']} {entry['rule']} {entry['where']}"
        if len(entry.get("reason", "").split()) < 4:
            yield f"{name} has no reason. Add one"
        if not any(_is(entry, item) for item in found):
            yield f"{name} matches no finding. Remove the entry"


def bandit() -> Iterator[Found]:
    """Python code."""
    for item in _run("bandit", "-q", "-r", "-f", "json", *CODE)["results"]:
        rule = f"{item['test_id']}:{item['test_name']}"
        yield Found(
            "bandit",
            rule,
            f"{item['filename'].removeprefix('./')}",
            f"{item['issue_text']} (line {item['line_number']})",
        )


def zizmor() -> Iterator[Found]:
    """Workflows of GitHub Actions: what makes them unsafe."""
    for item in _run("zizmor", "--offline", "--no-progress", "--persona=auditor", "--format=json", *workflows()):
        file = item["locations"][0]["symbolic"]["key"]["Local"]["verbatim_path"]
        yield Found("zizmor", item["ident"], file, item["desc"])


def actionlint() -> Iterator[Found]:
    """The same workflows: what makes them invalid. Scripts in them go to shellcheck, which is in the project's environment."""
    for item in _run("actionlint", "-format", "{{json .}}", *workflows()):
        yield Found("actionlint", item["kind"], item["filepath"], f"{item['message']} (line {item['line']})")


def workflows() -> list[str]:
    """What `init --ci github` writes; a test compares the example with it."""
    return [str(path.relative_to(ROOT)) for path in (ROOT / "examples").glob("*/.github/workflows/*.yml")]


def secrets() -> Iterator[Found]:
    """Every file in git."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    results = _run("detect-secrets", "scan", "--exclude-files", NO_SECRETS, *filter(None, names.split("\0")))["results"]
    for name, items in results.items():
        for item in items:
            yield Found("detect-secrets", item["type"], name, f"in line {item['line_number']}")


def checkov() -> Iterator[Found]:
    """Templates. checkov gets the folder, and must report that it has scanned it: it ignores files that it cannot
    read."""
    options = ("--skip-download", "--quiet", "--compact", "--framework", "cloudformation", "-o", "json")
    with tempfile.TemporaryDirectory() as folder:
        write_templates(Path(folder))
        report = _run("checkov", *options, "-d", folder)
    if report["summary"]["parsing_errors"] or not report["summary"]["resource_count"]:
        raise SystemExit(f"audit: checkov cannot read the templates: {report['summary']}")
    for item in report["results"]["failed_checks"]:
        where = f"{item['file_path'].rpartition('/')[2]}:{item['resource'].removeprefix('AWS::')}"
        yield Found("checkov", item["check_id"], where, item["check_name"])


def write_templates(folder: Path) -> None:
    """The templates of cluster.yaml, of a complete file with EKS, and of every example."""
    files = [ROOT / "cluster.yaml", ROOT / "tests" / "helpers" / "configs" / "eks.yaml"]
    programs = [(ROOT / "app.py", {"config": str(file)}) for file in files]
    programs += [(program, {}) for program in sorted((ROOT / "examples").glob("*/app.py"))]
    for program, context in programs:
        with tempfile.TemporaryDirectory() as assembly:
            for template in synthesize(program, Path(assembly), **context):
                shutil.copy(template, folder)


def _run(tool: str, *arguments: str) -> Any:
    """The JSON output of a tool. The exit code is ignored, because a finding changes it differently in each tool."""
    done = subprocess.run([str(BIN / tool), *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"audit: {tool} failed ({done.returncode}): {done.stderr.strip()[-2000:]}") from None


def _is(entry: Mapping[str, str], item: Found) -> bool:
    return (
        entry["tool"] == item.tool
        and item.rule.partition(":")[0] == entry["rule"]
        and fnmatch.fnmatchcase(item.where, entry["where"])
    )


if __name__ == "__main__":
    sys.exit(main())
