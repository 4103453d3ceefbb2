"""Measures the cost of synthesis, as ratios: `make bench`.

The default cluster's app.py alternates with an empty CDK app and with the program of by_hand.py, which creates the same
resources with plain L1 classes. Medians are compared. Then a cluster with EKS alternates with the default one, which
has Slurm, and with the empty app, and app.py synthesizes clusters of 1 to 100 groups. CDK's own validation costs every
app the same, so it is off except in one row.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EMPTY_APP = HERE / "empty_app.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The resource usage of one run, including its Node process, as the operating system reports it."""

    wall_s: float
    cpu_s: float


def run(program: Path, outdir: Path, *, validation: bool = False, config: Path | None = None) -> Run:
    """Run a program to its end. Raises SystemExit if it fails."""
    context = {} if config is None else {"config": str(config)}
    environment = {
        **os.environ,
        "CDK_OUTDIR": str(outdir),
        "BENCH_ASSETS": str(outdir.parent / "app.py"),
        "CDK_VALIDATION": str(validation).lower(),
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


def compare(folder: Path, rounds: int) -> None:
    """Print the default cluster compared with the empty app and the L1 program."""
    programs = {"app.py": ROOT / "app.py", "by hand": folder / "by_hand.py", "empty app": EMPTY_APP}
    run(programs["app.py"], folder / "app.py")
    subprocess.run([sys.executable, HERE / "by_hand.py", folder / "app.py", programs["by hand"]], check=True)
    runs: dict[str, list[Run]] = {name: [] for name in programs}
    for turn in range(rounds + 1):
        for name, program in programs.items():
            measured = run(program, folder / name)
            if turn:  # the first turn warms the disk
                runs[name].append(measured)
    if resources(folder / "app.py") != resources(folder / "by hand"):
        raise SystemExit("the program of by_hand.py creates other resources than app.py")
    validated = [run(programs["app.py"], folder / "validated", validation=True) for _ in range(3)]
    print(
        f"default cluster, {sum(resources(folder / 'app.py').values())} resources, medians of {rounds} runs in turn:\n"
    )
    print_ratios({**runs, "app.py, validated": validated})


def compare_eks(folder: Path, rounds: int) -> None:
    """Print a cluster with EKS, its stacks, teams and chart, compared with the default cluster and an empty app."""
    app, eks = ROOT / "app.py", ROOT / "tests" / "helpers" / "configs" / "eks.yaml"
    programs = {"app.py under EKS": (app, eks), "app.py under Slurm": (app, None), "empty app": (EMPTY_APP, None)}
    runs: dict[str, list[Run]] = {name: [] for name in programs}
    for turn in range(rounds + 1):
        for name, (program, config) in programs.items():
            measured = run(program, folder / name, config=config)
            if turn:
                runs[name].append(measured)
    total = sum(resources(folder / "app.py under EKS").values())
    print(f"\na cluster under EKS, {total} resources, medians of {rounds} runs in turn:\n")
    print_ratios(runs)


def print_ratios(runs: dict[str, list[Run]]) -> None:
    """Print a row for each program, compared with the first."""
    print(f"  {'':<24}{'wall s':>8}{'CPU s':>8}{'wall ratio':>12}{'CPU ratio':>11}")
    first, *_ = runs
    own_wall, own_cpu = median(runs[first])
    for name, measured_runs in runs.items():
        wall, cpu = median(measured_runs)
        print(f"  {name:<24}{wall:>8.2f}{cpu:>8.2f}{own_wall / wall:>12.2f}{own_cpu / cpu:>11.2f}")
    print("\n  The ratio is the first row's median divided by the row's.")


def median(runs: list[Run]) -> tuple[float, float]:
    """Median wall-clock and processor seconds."""
    return statistics.median(run.wall_s for run in runs), statistics.median(run.cpu_s for run in runs)


def grow(folder: Path) -> None:
    """Print the time of synthesis for growing numbers of groups."""
    base = yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8"))
    print("\nclusters of N groups:\n")
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
        compare(Path(folder), options.rounds)
        compare_eks(Path(folder), options.rounds)
        grow(Path(folder))


if __name__ == "__main__":
    main()
