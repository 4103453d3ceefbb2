"""Replace the controller under load, with kills of the copy and of the restore, and judge what is left.

    PYTHONPATH=tests:local_aws python -m helpers.slurm.replacing 24.11 --times 10 --seed 7

Every row of the table in docs/controller-replaced.md has a check here (ROWS). The load is made anew for each replacement.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from helpers.slurm import drains as asking
from helpers.slurm.cluster import Cluster, slurm_cluster
from helpers.slurm.drains import WORK, Drains
from helpers.slurm.hyperpod import Mode, SlurmVersion
from helpers.slurm.scripts import packed

MARKS = "/fsx/marks"
COPIES = "/fsx/.cdk-hyperpod-controller/llm-train"
UNIT = "cdk-hyperpod-state"
BAD = "GPU 3 has fallen off the bus"
SCRIPT = f"""#!/bin/bash
exec 9>>{MARKS}/$SLURM_JOB_ID
flock -n 9 || echo $SLURM_JOB_ID >>{MARKS}/twice
for i in {{1..3000}}; do [ ! -e {MARKS}/over ] || exit 0; sleep 0.1; done
"""
KILLED = """
cd {folder}; setsid bash ./controller.sh </dev/null >/dev/null 2>&1 &
run=$!
until [ {at} = script ] || [ -e /run/cdk-hyperpod-restoring ] || ! kill -0 $run; do sleep 0.05; done
sleep {seconds}; kill -9 -- -$run
"""
"""`at` script: a moment after the script has begun; restore: a moment after slurmctld was stopped for the restore."""


@dataclass
class Before:
    """What there was when the controller ended."""

    jobs: dict[str, str] = field(default_factory=dict)
    """Kind -> id."""
    copied: str = ""
    """The last copy."""
    since: bool = False
    """Jobs have begun since then."""
    last_id: int = 0
    reservation: str = ""
    history: set[str] = field(default_factory=set)


class Replacing:
    """A cluster whose controller is replaced."""

    def __init__(self, cluster: Cluster, drains: Drains, scripts: Path, seed: int) -> None:
        self.cluster, self.drains, self.scripts = cluster, drains, scripts
        self.random = random.Random(seed)
        self.controller = cluster.controller
        self.before = Before()
        self.seconds, self.said = 0.0, list[str]()
        busy, bad = cluster.compute[0], cluster.compute[-1]
        self.busy, self.bad = busy, bad

    @property
    def ends_jobs(self) -> bool:
        """HyperPod starts slurmctld before the scripts run."""
        return self.cluster.mode == "extended"

    # -- before

    def submit(self, kind: str, options: str) -> None:
        command = f"cd /tmp; sbatch --parsable --output=/dev/null {options} <<'END'\n{SCRIPT}END"
        self.before.jobs[kind] = self.cluster.login.run(command, user="alice").splitlines()[-1]

    def load(self) -> None:
        """Jobs of all kinds, a drain and a backup under way, and what admins do by hand. Then a copy, and what comes after it."""
        run = self.controller.run
        self.before = Before()
        self.cluster.login.run(f"rm -rf {MARKS}; mkdir -p -m 1777 {MARKS}")
        group = self.busy.instance.group
        here = f"-p {group} -w {self.busy.name} -c1"
        self.submit("running", here)
        self.submit("running --no-requeue", f"{here} --no-requeue")
        both = ("running", "running --no-requeue")
        self.cluster.until(lambda: {self.state(kind) for kind in both} == {"RUNNING"}, "the first two jobs run", 30)
        self.submit("waiting", f"{here} --exclusive")
        self.submit("waiting --no-requeue", f"{here} --exclusive --no-requeue")
        self.submit("array", f"{here} --exclusive --array=0-3")
        self.submit("held", f"{here} --hold")
        self.submit("cancelled", f"{here} --begin=now+3600")
        run(f"scontrol update nodename={self.bad.name} state=drain reason='{BAD}'")
        run(f"scontrol update partitionname={self.bad.instance.group} state=down")
        run(f"scontrol update partitionname={group} maxtime=77")
        run(
            f"scontrol create reservation reservationname=theirs starttime=now+7200 duration=60 users=alice nodes={self.bad.name}"
        )
        saved = self.cluster.compute[1]
        saved.run(f"mkdir -p {WORK} && echo model >{WORK}/model.bin")
        self.drains.ask(saved)
        self.before.reservation = self.reservation()
        self.before.history = self.history()
        time.sleep(6)  # slurmctld writes its state after five seconds
        # Without its notes it dumps the accounting database, too.
        run(
            f"systemctl stop {UNIT}.timer; rm -f /var/lib/cdk-hyperpod/state-copied.json; systemctl start {UNIT}.service"
        )
        self.before.copied = self.newest()
        self.controller.run(f"scancel {self.before.jobs['cancelled']}")
        self.submit("since", here)
        self.cluster.until(lambda: self.state("since") == "RUNNING", "the last job runs", 30)
        self.before.last_id = max(int(number) for number in self.before.jobs.values())

    def kill_copy(self) -> None:
        """Kill a copy at a random moment. Most of them are not whole then."""
        self.controller.run(f"systemctl start --no-block {UNIT}.service; sleep {self.random.uniform(0, 0.6):.2f}; "
                            f"systemctl kill --signal=KILL {UNIT}.service || true")  # fmt: skip
        self.before.since = self.newest() == self.before.copied

    # -- the replacement

    def replace(self, *, kills: int) -> None:
        """Another controller at the same address. `kills`: of its scripts, at random moments."""
        self.controller.replace()
        self.cluster.lay_slurm_conf()
        if self.ends_jobs:
            self.cluster.start_controller()
            met = "grep -q Orphan /var/log/slurm/slurmctld.log"
            self.cluster.until(lambda: self.controller.try_run(met).returncode == 0, "slurmctld has met the nodes", 30)
        folder = self.controller.download(self.scripts)
        for _ in range(kills):
            at, most = self.random.choice([("script", 8.0), ("restore", 4.0)])
            self.controller.run(KILLED.format(folder=folder, at=at, seconds=f"{self.random.uniform(0, most):.2f}"))
        result = self.controller.provision(self.scripts)
        self.seconds, self.said = result.seconds, result.output.splitlines()
        assert result.returncode == 0, result

    @property
    def restoring(self) -> float:
        """Seconds that the restore took, and a controller without a copy does not need."""
        lines = [line for line in self.said if "restoring state-" in line or "the controller's state is back" in line]
        times = [datetime.fromisoformat(line.split()[0].rstrip("Z")) for line in lines]
        return (times[-1] - times[0]).total_seconds() if len(times) > 1 else 0.0

    # -- after

    def state(self, kind: str) -> str:
        """PENDING, `held`, RUNNING and so on; empty: Slurm does not know the job."""
        said = self.controller.try_run(
            f"squeue --noheader --states=all --jobs={self.before.jobs[kind]} -O State:20,PriorityLong:20 | sort -u"
        )
        words = said.output.split()
        if len(words) < 2 or words[0].startswith("slurm_"):
            return ""
        return "held" if words[:2] == ["PENDING", "0"] else words[0]

    def reservation(self) -> str:
        shown = self.controller.try_run("scontrol --oneliner show reservation theirs").output.split()
        return " ".join(word for word in shown if word.startswith(("StartTime=", "EndTime=", "Nodes=", "Users=")))

    def history(self) -> set[str]:
        if not self.ends_jobs:
            return set()
        # Without jobs that wait: 24.11 does not show those that are held.
        rows = self.controller.run("sacct -D -X -a -n -P -S 2020-01-01 -o JobIDRaw,Submit,Start").splitlines()
        return {row.rpartition("|")[0] for row in rows if row.rpartition("|")[2].startswith("20")}

    def newest(self) -> str:
        return self.controller.run(f"ls {COPIES} | grep ^state- | tail -n1")

    def node_line(self, name: str) -> str:
        return self.controller.run(f"scontrol --oneliner show node {name}")

    def is_commented(self, kind: str) -> bool:
        return "AdminComment=cdk-hyperpod:" in self.controller.run(f"scontrol show job {self.before.jobs[kind]}")

    def faults(self) -> Iterator[str]:
        """What differs from the page."""
        for row, check in ROWS.items():
            if not check(self):
                jobs = {kind: self.state(kind) for kind in self.before.jobs}
                yield f"{row}: {jobs}, {self.before.history - self.history()}"
        for node in (self.bad, self.cluster.login):
            if "DRAIN" not in self.node_line(node.name).split(" State=")[1].split()[0]:
                yield f"{node.name} is not drained"
        if self.cluster.login.try_run(f"test -e {MARKS}/twice").returncode == 0:
            yield "a job ran twice at the same time"

    def clear(self) -> None:
        """End the load."""
        run = self.controller.run
        self.drains.ask()
        self.cluster.login.run(f"touch {MARKS}/over")
        run("scancel --user=alice; scontrol delete reservationname=theirs || true")
        run(
            f"scontrol update nodename={self.bad.name} state=resume; scontrol update partitionname={self.bad.instance.group} state=up"
        )
        self.cluster.until(lambda: not run("squeue --noheader --user=alice"), "no job is left", 60)


def _running(replacing: Replacing) -> bool:
    return replacing.state("running") == ("held" if replacing.ends_jobs else "RUNNING")


def _running_without_requeue(replacing: Replacing) -> bool:
    return replacing.state("running --no-requeue") == ("CANCELLED" if replacing.ends_jobs else "RUNNING")


def _new_ids(replacing: Replacing) -> bool:
    last = replacing.before.last_id
    replacing.submit("new", "-p dev --hold")
    return int(replacing.before.jobs["new"]) >= last + 9_000


def _lost(replacing: Replacing) -> bool:
    return not replacing.before.since or replacing.state("since") == ""


def _cancelled(replacing: Replacing) -> bool:
    return not replacing.before.since or replacing.state("cancelled") == "PENDING"


def _array(replacing: Replacing) -> bool:
    return not replacing.before.since or replacing.state("array") == "held"


def _max_time(replacing: Replacing) -> bool:
    return "MaxTime=01:17:00" not in replacing.controller.run(
        f"scontrol show partition {replacing.busy.instance.group}"
    )


ROWS: Mapping[str, Callable[[Replacing], bool]] = {
    "a waiting job": lambda it: it.state("waiting") in ("PENDING", "RUNNING"),
    "a waiting job with `--no-requeue`": lambda it: (
        it.state("waiting --no-requeue") == "held" and it.is_commented("waiting --no-requeue")
    ),
    "a held job": lambda it: it.state("held") == "held",
    "a waiting array, if jobs started since the copy": _array,
    "a running job": _running,
    "a running job with `--no-requeue`": _running_without_requeue,
    "a job submitted since the last copy": _lost,
    "a job cancelled since the last copy": _cancelled,
    "a drained node, with its reason": lambda it: BAD in it.node_line(it.bad.name),
    "a reservation": lambda it: it.reservation() == it.before.reservation,
    "a partition that was set down, drain or inactive by hand": lambda it: (
        "State=DOWN" in it.controller.run(f"scontrol show partition {it.bad.instance.group}")
    ),
    "other settings changed by `scontrol update`": _max_time,
    "the accounting history on the controller": lambda it: it.before.history <= it.history(),
    "job ids": _new_ids,
}
"""By the first column of the page's table."""


def once(replacing: Replacing, *, kills: int) -> list[str]:
    """One replacement under load. Returns what differs from the page."""
    replacing.load()
    if kills:
        replacing.kill_copy()
    else:
        replacing.before.since = True
    replacing.replace(kills=kills)
    found = list(replacing.faults())
    if found:
        found += [line for line in replacing.said if "17_keep_state" in line]
        found.append(replacing.controller.run("grep -E 'eserv|error' /var/log/slurm/slurmctld.log | tail -n 30"))
    asking.start(replacing.cluster)
    replacing.clear()
    return found


def main() -> None:
    """Print what happened; exit code 1 if something was wrong."""
    options = argparse.ArgumentParser()
    options.add_argument("version", choices=["22.05", "24.11"])
    options.add_argument("--mode", choices=["extended", "customer_managed"], default="extended")
    options.add_argument("--times", type=int, default=10)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    version: SlurmVersion = chosen.version
    mode: Mode = chosen.mode
    more = {} if mode == "extended" else {"slurm": {"drain": {"backup": {"paths": [WORK], "to": "/fsx/backup"}}}}
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder, slurm_cluster(version, mode, Path(folder)) as cluster:
        scripts = packed(Path(folder), lifecycle={"mode": mode}, **more)
        with ThreadPoolExecutor(1) as hyperpod:
            started = hyperpod.submit(cluster.hyperpod_starts_slurm) if mode == "extended" else None
            cluster.on_each(lambda node: node.provision(scripts))
            if started is not None:
                started.result()
        cluster.await_idle()
        with asking.agent(cluster) as drains:
            replacing = Replacing(cluster, drains, scripts, chosen.seed)
            for number in range(chosen.times):
                found = once(replacing, kills=number % 3)
                print(
                    f"{version}, {mode}, {number + 1}: {replacing.seconds:.1f} s, restore {replacing.restoring:.0f} s, {len(found)} faults",
                    flush=True,
                )
                faults += found
    print(json.dumps(faults, indent=1))
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
