"""What the agent reads of Slurm's commands. tests/real/slurm has it on real Slurm."""

from __future__ import annotations

import subprocess

import pytest

from helpers.lifecycle.agent import ONE, START, TWO, held, job, node_request, slurm_node
from helpers.lifecycle.programs import load

slurm = load("agent/slurm.py")


def test_nodes_are_read_with_their_marks_and_whatever_a_reason_holds() -> None:
    text = (
        "NodeName=n1 Arch=x86_64 NodeAddr=10.0.0.1 OS=Linux 6.1 #1 SMP State=IDLE*+DRAIN+MAINTENANCE Partitions=p5,dev "
        "Reason=cdk-hyperpod:operator:r1:saved [root@2026-01-01T00:00:00]\n"
        "NodeName=n2 NodeAddr=10.0.0.2 State=DOWN+NOT_RESPONDING Reason=State=IDLE NodeName=n1 [slurm@2026-01-01T00:00:00]\n"
        "NodeName=n3 NodeAddr=10.0.0.3 State=IDLE+DRAIN Reason=Kill task failed [root@2026-01-01T00:00:00] Comment=[a] "
        "ReservationName=cdk-hyperpod-i-0\nNodeName=n4 NodeAddr=10.0.0.4 State=IDLE+DRAIN Reason=bad [a b] GPU\n"
    )
    nodes = slurm.parse_nodes(text)
    assert nodes["n1"].our_drain == slurm.OurDrain(slurm.Mark.SAVED)
    assert (nodes["n1"].silent, nodes["n1"].down, nodes["n1"].partitions) == (True, False, ("p5", "dev"))
    assert (nodes["n2"].silent, nodes["n2"].down, nodes["n2"].drained) == (True, True, False)
    assert nodes["n2"].reason == "State=IDLE NodeName=n1"
    # As 24.11 has it.
    assert (nodes["n3"].reason, nodes["n4"].reason) == ("Kill task failed", "bad [a b] GPU")


def test_a_reason_of_ours_on_a_node_that_is_not_drained_is_no_drain() -> None:
    """Slurm 24.11 keeps the reason of a node that was resumed."""
    assert slurm_node(reason="cdk-hyperpod:operator:r1:saved").our_drain is None


def test_slurm_output_that_is_not_utf_8_is_read() -> None:
    assert slurm.run("printf", r"Reason=\377").stdout == "Reason=\N{REPLACEMENT CHARACTER}"


def test_jobs_are_counted_on_their_nodes_and_backups_are_not_jobs() -> None:
    text = (
        "1|alice|RUNNING|N/A|n[1-2]||1\n2|bob|PENDING|N/A||n2|2_[1-9%4]\n3|root|RUNNING|N/A|n1|n1|3\n"
        f"4|bob|COMPLETED|{START}|n1||4\nwords\n5|eve|COMPLETING|{START}|n2||5\n"
        # The node of their reservation has left slurm.conf, and came back.
        f"6|eve|RESV_DEL_HOLD|{START}|n2||6\n7|eve|RESV_DEL_HOLD|N/A||n1|7\n"
    )
    running, naming, queue = slurm.parse_jobs(text, {"3"}, lambda names: ("n1", "n2") if "[" in names else (names,))
    assert running == {"n1": (job(1),), "n2": (job(1), job(5, "eve", "COMPLETING"))}
    assert naming == {"n2": (job(2, "bob", "PENDING"),), "n1": (job(7, "eve", "PENDING"),)}
    # The pending tasks of an array count once; what has ended does not count.
    assert queue == 4


def test_only_jobs_of_ours_are_backups() -> None:
    name = slurm.backup_name(node_request(), START)
    text = (
        f"7|RUNNING|N/A|None|{name}|3 of 4 GB | more\n8|PENDING|N/A|Priority|{name}|(null)\n"
        f"9|RUNNING|N/A|None|wrap|{name}\n"
    )
    assert slurm.parse_backups(text) == {
        name: (slurm.Backup("7", "RUNNING", "3 of 4 GB | more"), slurm.Backup("8", "PENDING", "waits, Priority"))
    }


def test_only_reservations_of_ours_are_read() -> None:
    text = (
        f"ReservationName=cdk-hyperpod-{ONE} StartTime={START} Nodes=n1 Users=root Flags=MAINT\n"
        f"ReservationName=cdk-hyperpod-{TWO} Nodes=n2 Users=alice\nReservationName=theirs Nodes=n1 Users=root\n"
    )
    assert slurm.parse_reservations(text) == {ONE: held()}
    assert slurm.parse_reservations("No reservations in the system\n") == {}


def test_a_name_without_an_address_is_a_node_without_one() -> None:
    (node,) = slurm.parse_nodes("NodeName=n1 NodeAddr=n1.invalid State=IDLE Partitions=dev,p5").values()
    assert node.addresses == frozenset()


def test_a_task_is_named_by_its_array_and_never_by_the_number_of_the_last_one() -> None:
    text = (
        "8|al|RUNNING|N/A|n1||7_0\n7|al|RUNNING|N/A|n2||7_3\n9|al|PENDING|N/A||n2|9_[1-9999]\n"
        "11|al|RUNNING|N/A|n1||10+1\n"
    )
    running, naming, _ = slurm.parse_jobs(text, (), lambda names: (names,))
    assert {name: [each.id for each in jobs] for name, jobs in running.items()} == {
        "n1": ["7_0", "10+1"],
        "n2": ["7_3"],
    }
    assert [each.id for each in naming["n2"]] == ["9"]


@pytest.mark.parametrize(
    "said",
    [
        'error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": gone\nProtocol authentication error\n',
        "scontrol: error: Munge decode failed: Expired credential\nslurm_load_node error: Protocol authentication error\n",
    ],
)
def test_without_munge_the_problem_names_it(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(slurm, "run", lambda *command, **_: subprocess.CompletedProcess(command, 1, said))
    with pytest.raises(slurm.SlurmError, match=r"Munge .*; look at `systemctl status munge`, and start it again"):
        slurm.run_slurm("scontrol", "show", "node")
