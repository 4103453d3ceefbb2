"""Step slurm: waits for daemons, starts what was left off, heals or names what is known. systemd is a folder here."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.lifecycle.node_folder import Node, messages, the_error

SYSTEMCTL = r"""
# What is in units/NAME is the unit's state; a unit that fails to start has a file NAME.fails.
units=$(dirname "$0")/../units
unit=${!#}
unit=${unit%.service}
case $1 in
show)
    [[ -e $units/$unit ]] || { [[ $3 == LoadState ]] && echo LoadState=not-found || echo "$3=inactive"; exit 0; }
    state=$(<"$units/$unit")
    [[ $3$state != ActiveStateauto-restart ]] || state=activating
    [[ $3 == LoadState ]] && echo LoadState=loaded || echo "$3=$state"
    ;;
start)
    echo "start $unit" >>"$units.log"
    [[ ! -e $units/$unit.fails ]] || { echo failed >"$units/$unit"; echo "Job for $unit.service failed."; exit 1; }
    echo active >"$units/$unit"
    ;;
is-enabled) [[ -e $units/$unit.enabled ]] ;;
*) echo "$1 $unit" >>"$units.log" ;;
esac
"""


class SlurmNode(Node):
    """A node with units, and a controller that answers when slurmctld, or what `controller` names, is active."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.switch_on("slurm")
        (self.root / "units").mkdir()
        self.command("systemctl", SYSTEMCTL)
        self.command("journalctl", f'cat "{self.root}/journal" 2>/dev/null')
        self.command("timedatectl", "echo NTPSynchronized=yes")
        self.unit("munge", "active")
        self.controller("up")

    def unit(self, name: str, state: str) -> None:
        (self.root / "units" / name).write_text(f"{state}\n")

    def state(self, name: str) -> str:
        return (self.root / "units" / name).read_text().strip()

    def empty_topology(self) -> Path:
        """slurmctld does not start with it. Returns its folder."""
        folder = self.root / "opt/slurm/etc"
        folder.mkdir(parents=True)
        (folder / "topology.yaml").write_text("\n")
        return folder

    def controller(self, state: str) -> None:
        up = "Slurmctld(primary) at ip-10-1-0-10 is UP"
        down = "echo Slurmctld(primary) at ip-10-1-0-10 is DOWN; exit 1"
        bodies = {
            "up": f"echo '{up}'",
            "down": down,
            "with slurmctld": f'[[ $(<"{self.root}/units/slurmctld") == active ]] && echo "{up}" || {{ {down}; }}',
        }
        self.command("scontrol", bodies[state].replace("(primary)", "[primary]") if state == "down" else bodies[state])

    @property
    def asked(self) -> list[str]:
        file = self.root / "units.log"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def node(tmp_path: Path) -> SlurmNode:
    return SlurmNode(tmp_path)


def test_a_running_slurmd_is_left_alone(node: SlurmNode) -> None:
    node.unit("slurmd", "active")
    result = node.provision()
    assert result.returncode == 0
    assert "INFO 20_slurm.py: Slurm answers, slurmd runs" in messages(result.stdout)
    assert node.asked == []


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_daemon_that_the_image_left_off_is_started(node: SlurmNode, state: str) -> None:
    node.unit("slurmd", state)
    result = node.provision()
    assert result.returncode == 0
    assert f"INFO 20_slurm.py: slurmd is {state}; starting it" in messages(result.stdout)
    assert node.asked[-3:] == ["reset-failed slurmd", "enable slurmd", "start slurmd"]
    assert node.provision().returncode == 0
    assert node.asked[-3:] == ["reset-failed slurmd", "enable slurmd", "start slurmd"], "the second run changes nothing"


def test_a_daemon_that_hyperpod_is_starting_is_waited_for(node: SlurmNode) -> None:
    node.unit("slurmd", "activating")
    node.command("sleep", "true")
    node.command("scontrol", f"echo active >{node.root}/units/slurmd; echo 'Slurmctld(primary) at a is UP'")
    # Nothing asks scontrol while slurmd is not up, so somebody else ends the start.
    node.command("journalctl", "true")
    result = node.provision(PROVISION_ATTEMPTS="2")
    assert "slurmd is activating (looked 2 times" in the_error(result)
    assert node.asked == []


def test_a_daemon_is_started_only_after_several_checks(node: SlurmNode) -> None:
    node.unit("slurmd", "inactive")
    systemctl = node.root / "bin" / "systemctl"
    shown = 'units=$(dirname "$0")/../units\n[[ $3 != ActiveState ]] || echo "$4" >>"$units.looks"\n'
    systemctl.write_text(systemctl.read_text().replace("#!/bin/bash\n", f"#!/bin/bash\n{shown}", 1))
    assert node.provision(PROVISION_ATTEMPTS="30").returncode == 0
    looks = (node.root / "units.looks").read_text().splitlines()
    assert len(looks) >= 6, "a tenth of 30 looks, two questions each"


def test_a_daemon_without_slurm_conf_gets_it_from_the_controller(node: SlurmNode) -> None:
    node.unit("slurmd", "inactive")
    assert node.provision(PROVISION_ROOT=str(node.root)).returncode == 0
    drop_in = node.root / "etc/systemd/system/slurmd.service.d/cdk-hyperpod.conf"
    assert 'Environment="SLURMD_OPTIONS=--conf-server 10.1.0.10:6817"' in drop_in.read_text()
    assert "daemon-reload daemon-reload" in node.asked


def test_a_daemon_with_slurm_conf_starts_as_it_is(node: SlurmNode) -> None:
    node.unit("slurmd", "inactive")
    (node.root / "opt/slurm/etc").mkdir(parents=True)
    (node.root / "opt/slurm/etc/slurm.conf").write_text("ClusterName=llm-train\n")
    assert node.provision(PROVISION_ROOT=str(node.root)).returncode == 0
    assert not (node.root / "etc/systemd").exists()


def test_the_controller_starts_munge_the_database_s_daemon_and_slurmctld(node: SlurmNode) -> None:
    node.addresses("10.1.0.10")
    for name in ("munge", "slurmdbd", "slurmctld"):
        node.unit(name, "inactive")
    (node.root / "units" / "slurmdbd.enabled").touch()
    node.controller("with slurmctld")
    assert node.provision("controller.sh").returncode == 0
    assert [line for line in node.asked if line.startswith("start")] == [
        "start munge", "start slurmdbd", "start slurmctld"
    ]  # fmt: skip


def test_an_empty_topology_file_is_renamed(node: SlurmNode) -> None:
    node.addresses("10.1.0.10")
    node.unit("slurmctld", "failed")
    node.controller("with slurmctld")
    folder = node.empty_topology()
    result = node.provision("controller.sh", PROVISION_ROOT=str(node.root))
    assert result.returncode == 0
    assert "WARNING 20_slurm.py: /opt/slurm/etc/topology.yaml was empty" in result.stdout
    assert [file.name for file in folder.iterdir()] == ["topology.yaml.empty"]


def test_a_controller_that_ends_again_and_again_is_healed(node: SlurmNode) -> None:
    node.addresses("10.1.0.10")
    node.unit("slurmctld", "auto-restart")
    node.controller("with slurmctld")
    folder = node.empty_topology()
    assert node.provision("controller.sh", PROVISION_ROOT=str(node.root)).returncode == 0
    assert [file.name for file in folder.iterdir()] == ["topology.yaml.empty"]
    assert node.asked[-1] == "start slurmctld"


def test_an_empty_topology_goes_also_while_slurmctld_is_starting(node: SlurmNode) -> None:
    node.addresses("10.1.0.10")
    node.unit("slurmctld", "activating")
    folder = node.empty_topology()
    node.provision("controller.sh", PROVISION_ROOT=str(node.root))
    assert [file.name for file in folder.iterdir()] == ["topology.yaml.empty"]
    assert node.asked == [], "what systemd starts is not started by us"


def test_a_helper_that_failed_is_started_again(node: SlurmNode) -> None:
    node.unit("slurmd", "failed")
    node.unit("munge", "failed")
    assert node.provision().returncode == 0
    assert node.asked[:2] == ["reset-failed munge", "start munge"]


def test_a_topology_that_says_something_stays(node: SlurmNode) -> None:
    node.addresses("10.1.0.10")
    node.unit("slurmctld", "failed")
    node.controller("with slurmctld")
    (node.root / "opt/slurm/etc").mkdir(parents=True)
    (node.root / "opt/slurm/etc/topology.yaml").write_text("- topology: default\n")
    assert node.provision("controller.sh", PROVISION_ROOT=str(node.root)).returncode == 0
    assert (node.root / "opt/slurm/etc/topology.yaml").exists()


@pytest.mark.parametrize(
    ("journal", "words"),
    [
        (
            "fatal: CLUSTER ID MISMATCH.\n",
            (
                "CLUSTER ID MISMATCH: the accounting database knows this cluster by another id than slurmctld's own state; "
                "for a new cluster, remove the file clustername in StateSaveLocation"
            ),
        ),
        ("error: a\nfatal: no PartitionName\n", "it said last: fatal: no PartitionName"),
        ("", "look at `journalctl -u slurmctld`"),
    ],
)
def test_a_controller_that_does_not_start_says_why(node: SlurmNode, journal: str, words: str) -> None:
    node.addresses("10.1.0.10")
    node.unit("slurmctld", "inactive")
    (node.root / "units/slurmctld.fails").touch()
    node.controller("down")
    node.write("journal", journal)
    error = the_error(node.provision("controller.sh"))
    assert "step slurm failed with exit code 1: slurmctld is failed (looked 3 times, every 0 s); " in error
    assert words in error


@pytest.mark.parametrize("synchronized", ["yes", "no"])
def test_a_compute_node_whose_controller_is_silent_says_where_to_look(node: SlurmNode, synchronized: str) -> None:
    node.unit("slurmd", "active")
    node.controller("down")
    node.command("timedatectl", f"echo NTPSynchronized={synchronized}")
    error = the_error(node.provision())
    assert "look at slurmctld on the controller (10.1.0.10), and at port 6817 between the nodes" in error
    assert ("clock is not synchronized" in error) == (synchronized == "no")


def test_a_login_node_needs_no_daemon_of_its_own(node: SlurmNode) -> None:
    node.addresses("10.1.0.11")
    assert node.provision("login.sh").returncode == 0
    assert node.asked == []


def test_a_login_node_starts_what_brings_slurm_conf_where_nothing_answers(node: SlurmNode) -> None:
    node.addresses("10.1.0.11")
    node.unit("sackd", "inactive")
    node.unit("slurmd", "inactive")
    node.command("scontrol", f'[[ $(<"{node.root}/units/sackd") == active ]] && echo is UP')
    assert node.provision("login.sh").returncode == 0
    assert node.state("slurmd") == "inactive", "a login node runs no jobs"


def test_an_image_without_slurm_is_named(node: SlurmNode) -> None:
    assert "systemd has no unit slurmd; use an image of HyperPod's for Slurm" in the_error(node.provision())


def test_without_munge_the_step_names_it(node: SlurmNode) -> None:
    """scontrol says last that slurmctld is down."""
    node.unit("slurmd", "active")
    node.unit("munge", "failed")
    said = (
        'scontrol: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory'
    )
    node.command("scontrol", f"echo '{said}'; echo Slurmctld[primary] at ip-10-1-0-10 is DOWN; exit 1")
    error = the_error(node.provision(PROVISION_ATTEMPTS="1"))
    assert "Munge encode failed" in error
    assert "look at `systemctl status munge`, and start it again" in error
