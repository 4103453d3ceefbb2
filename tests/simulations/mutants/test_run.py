"""The report of `make mutants`, and the code that it excludes."""

from __future__ import annotations

import ast
from pathlib import Path

from simulations.mutants.run import LIFETIMES, ROOT, Fault, idle, nearest_tests, report

DIFF = """--- mutation diff ---
--- ax.py
+++ bx.py
@@ -1,2 +1,2 @@
 def more():
-    return 1
+    return 2
"""


def test_a_surviving_mutant_is_reported_with_its_line_and_change() -> None:
    faults = [Fault(7, "killed", True, ""), Fault(2, "survived", False, DIFF), Fault(9, "", False, "")]
    assert list(report(Path("x.py"), faults)) == [
        "x.py:2: survived",
        "    -    return 1",
        "    +    return 2",
        "x.py:9: not tried",
        "3 faults: 1 killed (1 of them because the tests did not end), 1 survived, 1 not tried",
    ]


def test_no_fault_in_what_does_nothing() -> None:
    code = (
        "@made(frozen=True)\nclass A:\n    a: int | None = 1 | 2\n    def b(self, c: A | B) -> A | B: return c | self\n"
        "    def d(self, c=1 * 2, *, e=2 * 3): return c * e\n"
        "def f(*, g): return g * 2\n"
    )
    lines = code.splitlines()
    assert [lines[begin[0] - 1][begin[1] : end[1]] for begin, end in sorted(idle(ast.parse(code)))] == [
        "made(frozen=True)",
        "int | None",
        "A | B",
        "A | B",
        ", *, ",
        "def f(*, ",
    ]


def test_the_modules_own_tests_come_first_and_lifetimes_last() -> None:
    first, second, *_, last = nearest_tests("scale_down/decide/group_deletion")
    assert first == "tests/unit/scale_down/test_group_deletion.py"
    assert second.startswith("tests/unit/scale_down/test_a")
    assert last == LIFETIMES
    assert (ROOT / LIFETIMES).is_file()
    assert nearest_tests("kernel/drain_protocol")[0] == "tests/unit/kernel/test_drain_protocol.py"
    assert len(nearest_tests("drainer/cluster_snapshot")) > 1
