"""Measures the cost of synthesis, as ratios: `make bench`.

app.py alternates with bare.py, which creates the same resources as bare CfnResource, for the default cluster and for one
under EKS. Medians are compared. Then app.py synthesizes clusters of 1 to 100 groups. CDK's own validation costs every app
the same, so it is off.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CLUSTERS = {"the default cluster": None, "a cluster under EKS": ROOT / "tests" / "helpers" / "configs" / "eks.yaml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The resource usage of one run, including its Node process, as the operating system reports it."""

    wall_s: float
    cpu_s: float


def run(program: Path, outdir: Path, *, config: Path | None) -> Run:
    """Run a program to its end. Raises SystemExit if it fails."""
    context = {} if config is None else {"config": str(config)}
    environment = {
        **os.environ,
        "CDK_OUTDIR": str(outdir),
        "BENCH_ASSEMBLY": str(outdir.parent / "app.py"),
        "CDK_VALIDATION": "false",
        "CDK_CONTEXT_JSON": json.dumps(context),
        # Bytecode is kept, as for an installed library, whatever the caller's environment says.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(outdir.parent / "byte-code"),
    }
    before = time.perf_counter()
    pid = os.spawnve(os.P_NOWAIT, sys.executable, [sys.executable, str(program)], environment)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{program} failed")
    return Run(wall_s=time.perf_counter() - before, cpu_s=usage.ru_utime + usage.ru_stime)


def resources(outdir: Path) -> Counter[str]:
    """The number of resources of each type in the templates."""
    return Counter(
        resource["Type"]
        for path in outdir.glob("*.template.json")
        for resource in json.loads(path.read_text("utf-8")).get("Resources", {}).values()
    )


def compare(folder: Path, rounds: int, config: Path | None) -> None:
    """Print app.py compared with bare.py."""
    programs = [ROOT / "app.py", HERE / "bare.py"]
    runs: dict[str, list[Run]] = {program.name: [] for program in programs}
    for turn in range(rounds + 1):
        for program in programs:
            measured = run(program, folder / program.name, config=config)
            if turn:  # the first turn warms the disk
                runs[program.name].append(measured)
    own, bare = (resources(folder / program.name) for program in programs)
    if own != bare:
        raise SystemExit("bare.py creates other resources than app.py")
    (own_wall, own_cpu), (wall, cpu) = map(median, runs.values())
    print(
        f"  {own.total()} resources, medians of {rounds} runs in turn: {own_cpu:.2f} s of processor, bare {cpu:.2f} s"
    )
    print(f"  ratio: {own_wall / wall:.2f} by the clock, {own_cpu / cpu:.2f} of processor\n")


def median(runs: list[Run]) -> tuple[float, float]:
    """Median wall-clock and processor seconds."""
    return statistics.median(run.wall_s for run in runs), statistics.median(run.cpu_s for run in runs)


def grow(folder: Path) -> None:
    """Print the time of synthesis for growing numbers of groups."""
    base = yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8"))
    print("clusters of N groups:\n")
    print(f"  {'groups':>6}{'wall s':>8}{'CPU s':>8}{'cluster template kB':>21}{'resources':>11}")
    for count in (1, 10, 50, 100):
        groups = [base["instance_groups"][0]]
        groups += [
            {**base["instance_groups"][2], "name": f"p5-{i}", "instance_count": 1, "min_instance_count": 1}
            for i in range(1, count)
        ]
        config = folder / f"{count}.yaml"
        config.write_text(yaml.safe_dump({**base, "instance_groups": groups}), "utf-8")
        outdir = folder / str(count)
        wall, cpu = median([run(ROOT / "app.py", outdir, config=config) for _ in range(3)])
        size = max(path.stat().st_size for path in outdir.glob("*-cluster.template.json"))
        total = sum(resources(outdir).values())
        print(f"  {count:>6}{wall:>8.2f}{cpu:>8.2f}{size / 1000:>21.1f}{total:>11}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="counted runs of each program (default: 7)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, config in CLUSTERS.items():
            print(f"{name}:")
            compare(Path(tempfile.mkdtemp(dir=folder)), options.rounds, config)
        grow(Path(folder))


if __name__ == "__main__":
    main()
