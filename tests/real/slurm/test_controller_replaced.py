"""A controller is replaced under load: the table of docs/controller-replaced.md holds, while copy and restore are killed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.repository import ROOT
from helpers.slurm.cluster import Cluster, Provisioning
from helpers.slurm.drains import Drains
from helpers.slurm.replacing import COPIES, MARKS, ROWS, Replacing, once

FORGE = f"""
import gzip, hashlib, io, json, pathlib, shutil, tarfile

def put(copy, archive):
    (copy / "archive").write_bytes(archive)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({{**manifest, "sha256": hashlib.sha256(archive).hexdigest()}}))

copies = pathlib.Path("{COPIES}")
put(max(copies.glob("accounting-*")), gzip.compress(b"no SQL;"))
forged = copies / "state-000999-00000001"
shutil.copytree(max(copies.glob("state-*")), forged)
content = io.BytesIO()
with tarfile.open(fileobj=content, mode="w") as archive:
    member = tarfile.TarInfo("job_state")
    member.size = 5
    archive.addfile(member, io.BytesIO(b"x" * 5))
put(forged, content.getvalue())
"""
"""A dump that does not load, and a copy with which slurmctld does not start, both with a right checksum."""


def choose_by_hand(replacing: Replacing) -> None:
    """Of two copies the first one is no state of Slurm's. Jobs go on, and the other one is restored."""
    controller, newest = replacing.controller, replacing.newest()

    def restored(copy: str) -> Provisioning:
        command = f"bash {controller.download(replacing.scripts)}/controller.sh keep_state </dev/null"
        done = controller.try_run(command, env={"RESTORE_STATE": copy, "PROVISION_DELAY_S": "0.5"})
        replacing.cluster.until(lambda: "is UP" in controller.try_run("scontrol ping").output, "slurmctld is up", 30)
        return Provisioning(controller.instance, done.returncode, done.output, 0)

    controller.run(f"rm -f {MARKS}/over")
    replacing.submit("by hand", "-p dev -c1")
    replacing.cluster.until(lambda: replacing.state("by hand") == "RUNNING", "it runs", 30)
    controller.run(f"python3 -c '{FORGE}'")
    refused = restored("state-000999-00000001")
    assert refused.returncode == 1 and "slurmctld does not start with this state: " in refused.errors[0], refused
    assert replacing.state("by hand") == "RUNNING"
    controller.run(f"rm -r {COPIES}/state-000999-00000001")
    done = restored(newest)
    assert done.returncode == 0 and [line for line in done.lines if "the dump does not load: " in line], done
    replacing.clear()


def test_every_row_of_the_page_has_a_check() -> None:
    table = (ROOT / "docs" / "controller-replaced.md").read_text().split("## What is left")[1].split("\n\n")[1]
    rows = [re.sub(r", with `mode: \w+`", "", line.split("|")[1].strip()) for line in table.splitlines()[2:]]
    assert set(rows) == set(ROWS)


@pytest.mark.setups("22.05-extended", "24.11-extended")
def test_each_row_of_the_page_holds_after_a_controller_was_replaced_under_load(
    cluster: Cluster, provisioned: object, drains: Drains, scripts: Path
) -> None:
    replacing = Replacing(cluster, drains, scripts, seed=1)
    assert once(replacing, kills=1) == []
    if cluster.slurm == "24.11":
        choose_by_hand(replacing)
        # Without any copy that can be used.
        before = replacing.before.jobs["new"]
        cluster.controller.run(f"for each in {COPIES}/state-*/archive; do echo >>$each; done")
        cluster.controller.replace()
        cluster.lay_slurm_conf()
        cluster.start_controller()
        result = cluster.controller.provision(scripts)
        assert result.returncode == 0 and [line for line in result.lines if "new job ids begin" in line], result
        replacing.submit("new", "-p dev --hold")
        assert int(replacing.before.jobs["new"]) > int(before) + 9_000
