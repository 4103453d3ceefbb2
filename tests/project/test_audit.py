"""What the audit lets pass: what has a reason, and nothing else. `make audit` runs the tools themselves."""

from __future__ import annotations

import yaml

from tools.audit import BASELINE, Found, problems

FOUND = Found("bandit", "B602:shell", "app.py", "a shell")
ENTRY = {"tool": "bandit", "rule": "B602", "where": "app.py", "reason": "Nobody gives it anything to run."}


def test_a_finding_without_a_reason_fails() -> None:
    assert list(problems([FOUND], [ENTRY])) == []
    assert next(problems([FOUND], [])) == "app.py: bandit B602:shell: a shell"
    for change in ({"tool": "checkov"}, {"rule": "B60"}, {"where": "constructs/*"}):
        # The finding, what to do, and an entry that is about nothing.
        assert len(list(problems([FOUND], [ENTRY | change]))) == 3


def test_an_entry_without_a_reason_fails() -> None:
    assert list(problems([FOUND], [ENTRY | {"reason": "ok"}])) == [
        "audit_baseline.yaml: bandit B602 app.py has no reason. Add one"
    ]


def test_an_entry_that_is_found_no_more_fails() -> None:
    assert list(problems([], [ENTRY])) == [
        "audit_baseline.yaml: bandit B602 app.py matches no finding. Remove the entry"
    ]


def test_every_entry_says_why() -> None:
    baseline = yaml.safe_load(BASELINE.read_text("utf-8"))

    assert all(entry.keys() == {"tool", "rule", "where", "reason"} for entry in baseline)
    assert [line for line in problems([], baseline) if "has no reason" in line] == []
