"""Many lifetimes on all cores: `make soak LIFETIMES=10000`, or one with its log: `make soak SEED=17`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from .lifetime import Outcome, live
from .profiles import CYCLE, FIRST_SEEDS, PROFILES, profile_of

BATCH = 50

RECORD = re.compile("(<!-- soak: written by make soak -->\n).*?(<!-- /soak -->)", re.DOTALL)
"""Where a page has the results of the last long run."""


@dataclass(slots=True)
class Tally:
    """The results of many lifetimes."""

    lifetimes: int = 0
    by_profile: dict[str, Counter[str]] = field(default_factory=dict)
    """Profile -> the results of its lifetimes, by the columns of the table."""
    deployments: Counter[str] = field(default_factory=Counter)
    taken: int = 0
    unavoidable: Counter[str] = field(default_factory=Counter)
    failing: list[Outcome] = field(default_factory=list)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self.lifetimes += 1
            self.by_profile.setdefault(outcome.profile, Counter()).update(
                {
                    "lifetimes": 1,
                    "deployments": sum(outcome.deployments.values()),
                    "refused": outcome.refused,
                    "nodes deleted": outcome.taken,
                    "unavoidable": sum(outcome.unavoidable.values()),
                    "faults": bool(outcome.faults),
                }
            )
            self.deployments += outcome.deployments
            self.taken += outcome.taken
            self.unavoidable += outcome.unavoidable
            if outcome.faults:
                self.failing.append(outcome)

    def report(self) -> str:
        lines = [f"{self.lifetimes} lifetimes", self.table()]
        lines.append("deployments: " + ", ".join(f"{n} {name}" for name, n in self.deployments.most_common()))
        lines.append(f"nodes deleted by id: {self.taken}")
        lines.append("unavoidable:" if self.unavoidable else "nothing unavoidable")
        lines += [f"  {n:6d}  {name}" for name, n in self.unavoidable.most_common()]
        if self.failing:
            kinds: dict[str, list[int]] = {}
            for outcome in self.failing:
                for kind in dict.fromkeys(fault.split(":")[0] for fault in outcome.faults):
                    kinds.setdefault(kind, []).append(outcome.seed)
            lines.append(f"FAULTS in {len(self.failing)} lifetimes:")
            for kind, seeds in sorted(kinds.items(), key=lambda item: -len(item[1])):
                lines.append(f"  {len(seeds):6d}  {kind}: SEED={', '.join(map(str, seeds[:8]))}")
        else:
            lines.append("no fault")
        return "\n".join(lines)

    def table(self) -> str:
        """Results by profile, and in all. "refused" counts updates that prepare refused, "faults" lifetimes."""
        rows = {name: self.by_profile[name] for name in PROFILES if name in self.by_profile}
        total: Counter[str] = Counter()
        for row in rows.values():
            total.update(row)
        columns = list(total)
        lines = [f"| profile | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
        for name, row in (*rows.items(), ("all together", total)):
            lines.append(f"| {name} | {' | '.join(f'{row[column]:,}' for column in columns)} |")
        return "\n".join(lines)


def record(page: Path, tally: Tally, seeds: Sequence[int]) -> None:
    """Write the table of this run into a page, between its two marks."""
    text = f"\nSeeds {seeds[0]} to {seeds[-1]}:\n\n{tally.table()}\n\n"
    before = page.read_text()
    if not RECORD.search(before):
        raise SystemExit(f"{page}: has no place for the table: <!-- soak: written by make soak --> and <!-- /soak -->")
    page.write_text(RECORD.sub(lambda found: found[1] + text + found[2], before))


def seeds_of(number: int, *, first: int = 0, profile: str | None = None) -> list[int]:
    """This many seeds from the first on: of one profile if it is named, otherwise of those that alternate."""
    if profile is None:
        return list(range(first, first + number))
    if profile in FIRST_SEEDS:
        start = FIRST_SEEDS[profile] + first
        return list(range(start, start + number))
    start = first + (CYCLE.index(profile) - first) % len(CYCLE)
    return list(range(start, start + number * len(CYCLE), len(CYCLE)))


def soak(seeds: Sequence[int], *, processes: int | None = None, progress: bool = False) -> Tally:
    tally = Tally()
    batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    began = time.monotonic()
    with ProcessPoolExecutor(processes or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for outcomes in pool.map(_batch, batches):
            tally.add(outcomes)
            if progress:
                each = (time.monotonic() - began) / tally.lifetimes
                left = each * (len(seeds) - tally.lifetimes)
                print(
                    f"\r{tally.lifetimes} of {len(seeds)} lifetimes, {len(tally.failing)} with a fault, {left:.0f} s left   ",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
    if progress:
        print(file=sys.stderr)
    return tally


def _batch(seeds: Sequence[int]) -> list[Outcome]:
    return [live(seed) for seed in seeds]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="soak", description="Lifetimes of clusters against the scale-down function.")
    parser.add_argument("--lifetimes", type=int, default=1000)
    parser.add_argument("--profile", choices=list(PROFILES))
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="one lifetime, with its story")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--record", type=Path, help="the page that gets the table")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        outcome = live(given.seed, story=True)
        print(outcome.story)
        print(f"\nseed {given.seed}, profile {outcome.profile}: " + ("; ".join(outcome.faults) or "no fault"))
        return 1 if outcome.faults else 0
    seeds = seeds_of(given.lifetimes, first=given.first, profile=given.profile)
    tally = soak(seeds, processes=given.processes, progress=sys.stderr.isatty())
    print(f"seeds {seeds[0]} to {seeds[-1]}" + (f", profile {given.profile}" if given.profile else ""))
    print(tally.report())
    if given.record is not None:
        record(given.record, tally, seeds)
    if tally.failing:
        worst = min(tally.failing, key=lambda outcome: outcome.seed)
        print(f"\nThe first of them, SEED={worst.seed} ({profile_of(worst.seed)}):\n")
        print(live(worst.seed, story=True).story)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
