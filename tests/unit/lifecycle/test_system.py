"""Steps clock, access, system, container_data and checks, run for real in a folder that stands for the node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from helpers.lifecycle.node_folder import Node, messages, the_error
from helpers.lifecycle.programs import load

access = load("steps/50_access.py")
MOUNTS = "23 1 259:1 / / rw - ext4 /dev/root rw\n"


class Part(Node):
    """A node that runs one step, and a systemctl that notes what it is asked."""

    def step(self, name: str, script: str = "compute.sh", *, changes_nothing: bool = False) -> list[str]:
        self.switch_on(name)
        before = self.files() if changes_nothing else {}
        result = self.provision(script, PROVISION_ROOT=str(self.root))
        assert result.returncode == 0, result.stdout
        assert not changes_nothing or self.files() == before
        return [line.split(": ", 1)[1] for line in messages(result.stdout) if " provision.py" not in line][1:-1]

    def files(self) -> dict[Path, bytes]:
        noted = {self.log, self.root / "asked", self.root / "scripts/cluster.json"}
        return {file: file.read_bytes() for file in self.root.rglob("*") if file.is_file() and file not in noted}

    @property
    def asked(self) -> list[str]:
        file = self.root / "asked"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def node(tmp_path: Path) -> Part:
    part = Part(tmp_path)
    part.command(
        "systemctl",
        f'[[ $1 == show || $1 == is-active ]] || echo "$*" >>{tmp_path}/asked\n'
        f"[[ $* != *slurmd.service* ]] || echo ActiveState=active\n"
        f'[[ $* != *chrony.service* ]] || cat "{tmp_path}/clocks" 2>/dev/null\n'
        "[[ $1 != is-active ]]",
    )
    part.command("pgrep", "exit 1")  # the machine that runs the tests may run job steps
    part.command("chronyc", f'echo "$*" >>{tmp_path}/asked; cat "{tmp_path}/tracking" 2>/dev/null')
    part.write("clocks", "Id=chrony.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n")
    part.write("mountinfo", MOUNTS)
    return part


def test_limits_reach_logins_and_jobs(node: Part) -> None:
    said = node.step("system")
    assert "* hard memlock unlimited" in (node.root / "etc/security/limits.d/99-cdk-hyperpod.conf").read_text()
    drop_in = node.root / "etc/systemd/system/slurmd.service.d/cdk-hyperpod-limits.conf"
    assert "LimitMEMLOCK=infinity" in drop_in.read_text()
    assert node.asked == ["daemon-reload", "restart slurmd.service"]
    assert said[-1] == "limits and log rotation are set"
    assert node.step("system", changes_nothing=True) == said[-1:]
    assert node.asked.count("restart slurmd.service") == 1


@pytest.mark.parametrize(
    ("processes", "restarted"),
    [("811 slurmstepd: [7.batch]\n", False), ("640 /opt/slurm/sbin/slurmstepd infinity\n", True), ("", True)],
)
def test_slurmd_is_not_restarted_while_job_steps_run(node: Part, processes: str, restarted: bool) -> None:
    node.command("pgrep", f"printf '{processes}'")
    said = node.step("system")
    assert ("restart slurmd.service" in node.asked) == restarted
    later = "slurmd was not restarted, because jobs run here: run this step again when they have ended"
    assert (later in said) != restarted
    node.command("pgrep", "exit 1")
    node.step("system")
    assert node.asked.count("restart slurmd.service") == 1, "once, now or later"


PACKAGES = (
    "installed linux-image-6.8.0-1021-aws\ninstalled lustre-client-modules-aws\ninstalled bash\nconfig-files efa\n"
)


def test_an_upgrade_leaves_kernel_and_drivers_alone(node: Part) -> None:
    """What is there is held, and nothing else; needrestart reads its file, and leaves the daemons alone."""
    node.write("packages", PACKAGES)
    node.command("dpkg-query", f'cat "{node.root}/packages"')
    node.command(
        "apt-mark",
        f'[[ $1 != hold ]] || printf "%s\\n" "${{@:2}}" >>"{node.root}/held"; cat "{node.root}/held" || true',
    )
    assert "held linux-image-6.8.0-1021-aws, lustre-client-modules-aws" in node.step("upgrades")
    conf = node.root / "etc/needrestart/conf.d/cdk-hyperpod.conf"
    for service, restarts in {"slurmd": 0, "munge": 0, "ssh": 1, "my-slurmd": 1}.items():
        # As needrestart reads its files, and asks for each service.
        asks = (
            "our %nrconf = (override_rc => {}); my ($file, $service) = @ARGV; "
            "eval do { local (@ARGV, $/) = $file; <> }; die $@ if $@; my $found = 1; "
            "for my $each (keys %{$nrconf{override_rc}}) "
            "{ $found = $nrconf{override_rc}{$each} if $service =~ /$each/ } exit $found"
        )
        done = subprocess.run(["perl", "-e", asks, str(conf), f"{service}.service"], check=False)
        assert done.returncode == restarts, service
    assert "2 packages of kernel, Lustre client, EFA and drivers are held" in node.step(
        "upgrades", changes_nothing=True
    )


def test_a_busy_dpkg_is_no_reason_to_fail_a_node(node: Part) -> None:
    node.write("packages", PACKAGES)
    node.command("dpkg-query", f'cat "{node.root}/packages"')
    node.command("apt-mark", "[[ $1 != hold ]] || { echo 'dpkg frontend lock is held'; exit 100; }")
    said = node.step("upgrades")
    assert [line for line in said if line.startswith("`apt-mark hold` failed: dpkg frontend lock is held")]


@pytest.mark.parametrize("mode", ["process", "control-group"])
def test_a_restart_of_slurmd_ends_no_job(node: Part, mode: str) -> None:
    node.command("dpkg-query", "exit 127")
    node.command("systemctl", f'echo LoadState=loaded; echo KillMode={mode}; echo "$*" >>"{node.root}/asked"')
    assert node.step("upgrades")[-1] == "a restart of slurmd ends no job"
    drop_in = node.root / "etc/systemd/system/slurmd.service.d/cdk-hyperpod-kill-mode.conf"
    assert drop_in.exists() == ("daemon-reload" in node.asked) == (mode != "process")


@pytest.mark.parametrize("failing", ["daemon-reload", "restart slurmd.service"])
def test_a_failed_restart_of_slurmd_is_completed_by_the_next_run(node: Part, failing: str) -> None:
    systemctl = node.root / "bin/systemctl"
    works = systemctl.read_text()
    systemctl.write_text(works.replace("\n", f"\n[[ $* != '{failing}' ]] || exit 1\n", 1))
    node.switch_on("system")
    assert node.provision(PROVISION_ROOT=str(node.root)).returncode != 0
    systemctl.write_text(works)
    node.step("system")
    assert node.asked[-1] == "restart slurmd.service"
    assert node.asked.count(failing) == 1


@pytest.mark.parametrize(("state", "asked"), [("inactive", ["enable --now chrony.service"]), ("active", [])])
def test_chrony_is_started_if_it_is_inactive(node: Part, state: str, asked: list[str]) -> None:
    node.write("clocks", f"Id=chrony.service\nLoadState=loaded\nActiveState={state}\nUnitFileState=disabled\n")
    node.step("clock")
    assert [line for line in node.asked if "chrony" in line] == asked


@pytest.mark.parametrize(("offset", "mended"), [("300.5 seconds slow", True), ("0.0002 seconds fast", False)])
def test_a_clock_that_is_off_is_set(node: Part, offset: str, mended: bool) -> None:
    node.write("tracking", f"Stratum         : 4\nSystem time     : {offset} of NTP time\n")
    said = node.step("clock")
    assert ("makestep" in node.asked) == mended
    assert any("the clock is -300.5 s off; setting it" in line for line in said) == mended


def test_a_clock_that_cannot_be_set_is_a_warning(node: Part) -> None:
    node.write("tracking", "System time     : 300.5 seconds fast of NTP time\n")
    node.command("chronyc", f'[[ $* == "-n tracking" ]] && cat "{node.root}/tracking" || {{ echo 506 no; exit 1; }}')
    assert node.step("clock")[-1] == "`chronyc makestep` failed: 506 no"


def test_logs_that_the_image_rotates_are_left_to_it(node: Part) -> None:
    (node.root / "etc/logrotate.d").mkdir(parents=True)
    (node.root / "etc/logrotate.d/slurm").write_text("/var/log/slurm/slurmd.log {\n}\n")
    node.step("system")
    own = (node.root / "etc/logrotate.d/cdk-hyperpod").read_text()
    assert "/var/log/provision/*.log" in own and "/var/log/slurm" not in own


@pytest.mark.parametrize("disk", ["/opt/dlami/nvme", "/opt/sagemaker"])
def test_containers_store_on_the_big_disk(node: Part, disk: str) -> None:
    node.write("mountinfo", MOUNTS + f"96 23 0:54 / {disk} rw - ext4 /dev/nvme1n1 rw\n")
    (node.root / "etc/enroot").mkdir(parents=True)
    (node.root / "etc/docker").mkdir(parents=True)
    (node.root / "etc/docker/daemon.json").write_text('{"runtimes": {"nvidia": {}}}')
    node.command(
        "docker", f"grep -qs {disk}/docker {node.root}/daemon.started && echo 0 0 {disk}/docker || echo 0 0 /a"
    )
    systemctl = (node.root / "bin/systemctl").read_text()
    node.command("systemctl", "exit 1")
    node.switch_on("container_data")
    assert node.provision(PROVISION_ROOT=str(node.root)).returncode != 0, "Docker does not start"
    starts = f"[[ $* != 'restart docker.service' ]] || cp {node.root}/etc/docker/daemon.json {node.root}/daemon.started"
    (node.root / "bin/systemctl").write_text(f"{systemctl}{starts}\n")
    assert node.step("container_data")[-1] == f"Enroot stores in {disk}/enroot"
    settings = json.loads((node.root / "etc/docker/daemon.json").read_text())
    assert settings == {"runtimes": {"nvidia": {}}, "data-root": f"{disk}/docker"}
    assert (node.root / f"{disk[1:]}/enroot/data").stat().st_mode & 0o7777 == 0o711
    assert (node.root / f"{disk[1:]}/enroot").stat().st_mode & 0o7777 == 0o755, "who may write here may place links"
    assert f"echo {disk}/enroot/data/$(id -u)" in next((node.root / "etc/enroot/enroot.conf.d").iterdir()).read_text()
    node.step("container_data", changes_nothing=True)
    assert node.asked.count("restart docker.service") == 1


ENROOT_CONF = """\
#ENROOT_LIBRARY_PATH /usr/lib/enroot
ENROOT_CACHE_PATH    /opt/sagemaker/tmp/enroot/cache
  ENROOT_DATA_PATH=/var/lib/enroot/$(id -u)
ENROOT_TEMP_PATH =
ENROOT_ROOTFS_WRITABLE yes
"""


def test_folders_that_the_image_sets_for_enroot_are_replaced(node: Part) -> None:
    """Of several lines Enroot takes the first, and reads enroot.conf before enroot.conf.d."""
    node.write("mountinfo", MOUNTS + "96 23 0:54 / /opt/dlami/nvme rw - ext4 /dev/nvme1n1 rw\n")
    conf = node.root / "etc/enroot/enroot.conf"
    (conf.parent / "enroot.conf.d").mkdir(parents=True)
    conf.write_text(ENROOT_CONF)
    conf.chmod(0o640)
    assert node.step("container_data")[-1] == "Enroot stores in /opt/dlami/nvme/enroot"
    assert conf.read_text() == ENROOT_CONF.replace("ENROOT_CACHE", "# cdk-hyperpod: ENROOT_CACHE").replace(
        "  ENROOT_DATA", "# cdk-hyperpod:   ENROOT_DATA"
    )
    assert conf.stat().st_mode & 0o777 == 0o640
    node.step("container_data", changes_nothing=True)
    # Somebody's own file wins, and the log says so.
    (conf.parent / "enroot.conf.d/50-mine.conf").write_text("ENROOT_DATA_PATH /scratch\n")
    assert node.step("container_data", changes_nothing=True)[-1] == (
        "Enroot has ENROOT_DATA_PATH /scratch from /etc/enroot/enroot.conf.d/50-mine.conf, not "
        "$(test -O /opt/dlami/nvme/enroot/data/$(id -u) && echo /opt/dlami/nvme/enroot/data/$(id -u) || echo "
        "${XDG_DATA_HOME:-${HOME:-$(echo ~)}/.local/share}/enroot): take that line out to have ours"
    )


ENROOT = """\
set -euo pipefail
while IFS=$' \\t=' read -r key value; do
    [[ "$key" =~ ^ENROOT_[[:upper:]_]+$ ]] && export "$key=$(eval echo "$value")"
done < "$1"
umask 077
mkdir -p "$ENROOT_CACHE_PATH" "$ENROOT_DATA_PATH"
echo "$ENROOT_CACHE_PATH" "$ENROOT_DATA_PATH"
"""
"""Enroot's own lines that read its settings and make its folders."""


def test_root_and_the_files_users_have_folders_of_containers() -> None:
    """Root's images, too, are too large for the root volume, where its home is."""
    assert {0, 1234} <= load("steps/65_container_data.py").accounts({"users": [{"uid": 1234}]})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_no_user_can_make_anothers_folder_of_containers(tmp_path: Path) -> None:
    """Also under an earlier version's layout, in which 1001 had made the folders of 1002."""
    step = load("steps/65_container_data.py")
    umask = os.umask(0o022)  # as a step has it, whatever tests before this one have set
    disk = Path(tempfile.mkdtemp(dir="/var/tmp")).resolve()  # which users may enter, unlike pytest's own
    disk.chmod(0o755)
    conf = disk / "etc/enroot/enroot.conf.d"
    conf.mkdir(parents=True)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                step, "on_node", lambda path: disk / "etc" / path[5:] if path.startswith("/etc/") else Path(path)
            )
            patch.setattr(step, "write_file", lambda path, text, **_: bool((disk / path[1:]).write_text(text)))
            (disk / "enroot/cache").mkdir(parents=True)
            (disk / "enroot/data").mkdir()
            for name in ("cache", "data"):
                (disk / f"enroot/{name}").chmod(0o1777)
                for uid, owner in ((1002, 1001), (1004, 1004), (1005, 1001)):
                    (disk / f"enroot/{name}/{uid}").mkdir()
                    os.chown(disk / f"enroot/{name}/{uid}", owner, owner)
            for _ in range(2):
                step.place_enroot(str(disk), [1001, 1002])
        file = next(conf.iterdir())

        def enroot(uid: int) -> list[str]:
            home = disk / f"home{uid}"
            home.mkdir(exist_ok=True)
            os.chown(home, uid, uid)
            command = [
                "setpriv",
                f"--reuid={uid}",
                f"--regid={uid}",
                "--clear-groups",
                "bash",
                "-c",
                ENROOT,
                "x",
                str(file),
            ]
            env = {"PATH": os.environ["PATH"], "HOME": str(home)}
            return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.split()

        for uid in (1001, 1002, 1004):
            assert enroot(uid) == [f"{disk}/enroot/cache/{uid}", f"{disk}/enroot/data/{uid}"]
        for uid in (1003, 1005):  # of a directory service; for one of them another has made the folders before
            assert enroot(uid) == [f"{disk}/home{uid}/.cache/enroot", f"{disk}/home{uid}/.local/share/enroot"]
        for name in ("cache", "data"):
            assert sorted(path.name for path in (disk / f"enroot/{name}").iterdir()) == ["1001", "1002", "1004"]
            for uid in (1001, 1002, 1004):
                found = (disk / f"enroot/{name}/{uid}").stat()
                assert (found.st_uid, found.st_mode & 0o7777) == (uid, 0o700)
            theirs = [
                "setpriv",
                "--reuid=1001",
                "--regid=1001",
                "--clear-groups",
                "mkdir",
                str(disk / f"enroot/{name}/1006"),
            ]
            assert subprocess.run(theirs, capture_output=True, check=False).returncode != 0
    finally:
        os.umask(umask)
        shutil.rmtree(disk)


@pytest.mark.parametrize("folder", ["enroot/cache", "docker"])
def test_root_opens_nothing_that_a_link_leads_to(node: Part, folder: str) -> None:
    node.write("mountinfo", MOUNTS + "96 23 0:54 / /opt/dlami/nvme rw - ext4 /dev/nvme1n1 rw\n")
    (node.root / "etc/enroot").mkdir(parents=True)
    (node.root / "opt/dlami/nvme/enroot").mkdir(parents=True)
    (node.root / "secret").mkdir(mode=0o700)
    (node.root / "opt/dlami/nvme" / folder).symlink_to(node.root / "secret")
    node.command("docker", "echo 0 0 /var/lib/docker" if folder == "docker" else "exit 127")
    node.switch_on("container_data")
    done = node.provision(PROVISION_ROOT=str(node.root))
    assert f"/opt/dlami/nvme/{folder} is not a folder of root's own" in the_error(done)
    assert (node.root / "secret").stat().st_mode & 0o777 == 0o700


def test_docker_with_images_goes_on_storing_where_it_did(node: Part) -> None:
    node.write("mountinfo", MOUNTS + "96 23 0:54 / /opt/dlami/nvme rw - ext4 /dev/nvme1n1 rw\n")
    node.command("docker", "echo 1 3 /var/lib/docker")
    assert "Docker has 1 containers and 3 images already; it goes on storing there" in node.step("container_data")
    assert "restart docker.service" not in node.asked


def test_without_a_big_disk_containers_stay(node: Part) -> None:
    (only,) = node.step("container_data", changes_nothing=True)
    assert only.endswith("containers stay on the root volume")


def test_checks_warn_and_never_fail(node: Part) -> None:
    (node.root / "dev").mkdir()
    for index in range(7):
        (node.root / f"dev/nvidia{index}").touch()
    (node.root / "dev/nvidiactl").touch()
    for index in range(32):
        (node.root / f"sys/class/infiniband/rdmap{index}").mkdir(parents=True)
    said = node.step("checks", changes_nothing=True)
    assert said[:2] == [
        "7 of 8 GPUs that an ml.p5.48xlarge has; look at `dmesg`",
        "32 EFA devices, as an ml.p5.48xlarge has",
    ]
    assert "GiB are free on /" in said[-2 if shutil.which("srun") else -1]


@pytest.mark.parametrize(("listed", "warned"), [(8, False), (7, True)])
def test_checks_ask_the_driver_for_each_device(node: Part, listed: int, warned: bool) -> None:
    node.command("nvidia-smi", f'for i in $(seq 0 {listed - 1}); do echo "GPU $i: NVIDIA H100 (UUID: GPU-$i)"; done')
    said = node.step("checks")
    assert ("nvidia-smi lists 7 of 8 GPUs; look at `dmesg`, and replace the node" in said) == warned
    node.command("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    failed = "nvidia-smi failed: Failed to initialize NVML: Driver/library version mismatch; look at `dmesg`, and replace the node"
    assert failed in node.step("checks")


@pytest.mark.parametrize(
    ("help_text", "known"), [("--container-image=[USER@][REGISTRY#]IMAGE", True), ("--nodes", False)]
)
def test_checks_ask_whether_containers_run(node: Part, help_text: str, known: bool) -> None:
    node.command("srun", f"echo '{help_text}'")
    said = node.step("checks")
    assert ("srun knows --container-image" in said) == known
    assert ("srun does not know --container-image; load Pyxis in plugstack.conf beside slurm.conf" in said) != known


@pytest.mark.parametrize(("plugin", "missing"), [("topology/tree", True), ("topology/default", False)])
def test_checks_look_for_the_topology_that_slurm_conf_names(node: Part, plugin: str, missing: bool) -> None:
    etc = node.root / "opt/slurm/etc"
    etc.mkdir(parents=True)
    (etc / "slurm.conf").write_text(f"ClusterName=x\nTopologyPlugin={plugin}\n")
    node.addresses("10.1.0.10")
    warning = (
        f"/opt/slurm/etc/slurm.conf has TopologyPlugin={plugin}, but there is no topology.conf or topology.yaml beside it; "
        "add it"
    )
    assert (warning in node.step("checks", "controller.sh")) == missing
    (etc / "topology.conf").write_text("SwitchName=s0 Nodes=p5-[1-8]\n")
    assert warning not in node.step("checks", "controller.sh")


SSHD = "@include common-auth\naccount required pam_nologin.so\n@include common-account\n"


@pytest.mark.parametrize("folder", ["usr/lib/x86_64-linux-gnu/security", "opt/slurm/lib/security"])
def test_a_compute_node_asks_for_a_job_where_the_image_can(node: Part, folder: str) -> None:
    (node.root / "etc/pam.d").mkdir(parents=True)
    (node.root / "etc/pam.d/sshd").write_text(SSHD)
    assert node.step("access")[0].startswith("this image has no pam_slurm_adopt")
    assert (node.root / "etc/pam.d/sshd").read_text() == SSHD
    (node.root / folder).mkdir(parents=True)
    (node.root / folder / "pam_slurm_adopt.so").touch()
    node.step("access")
    line = (node.root / "etc/pam.d/sshd").read_text().splitlines()[-1]
    assert line.split() == ["account", "required", f"/{folder}/pam_slurm_adopt.so"], "libpam looks nowhere else"
    node.step("access", changes_nothing=True)


NODES = (
    "NodeName=ip-10-1-0-21 NodeAddr=10.1.0.21 NodeHostName=ip-10-1-0-21 State=IDLE\n"
    "NodeName=other NodeAddr=10.1.0.11 NodeHostName={host} State={state} Reason=State=IDLE NodeName=x [root@now]\n"
)


@pytest.mark.parametrize(("state", "drained"), [("IDLE", True), ("MIXED", True), ("IDLE+DRAIN", False)])
def test_a_login_node_is_drained_by_the_name_that_slurm_has_for_it(node: Part, state: str, drained: bool) -> None:
    node.addresses("10.1.0.11")
    shown = NODES.format(host=os.uname().nodename, state=state)
    node.write("nodes", shown)
    node.command("scontrol", f'[[ $1 == --oneliner ]] && cat "{node.root}/nodes" || echo "$*" >>"{node.root}/asked"')
    node.step("access", "login.sh")
    update = "update NodeName=other State=DRAIN Reason=login node: runs no jobs"
    assert (update in node.asked) == drained
    assert "enable --now cdk-hyperpod-access.timer" in node.asked
    assert not (node.root / "etc/pam.d").exists(), "a login node would lock its users out"


def test_a_login_node_is_drained_although_slurmctld_restarts_meanwhile(node: Part) -> None:
    """HyperPod restarts it while nodes join. Each question and each command meets that twice."""
    node.addresses("10.1.0.11")
    node.write("nodes", NODES.format(host=os.uname().nodename, state="IDLE"))
    away = "echo 'Unable to contact slurm controller (connect failure)'; exit 1"
    node.command(
        "scontrol",
        f'echo "$1" >>"{node.root}/calls"; (( $(grep -c -e "^$1" "{node.root}/calls") > 2 )) || {{ {away}; }}\n'
        f'[[ $1 == --oneliner ]] && cat "{node.root}/nodes" || echo "$*" >>"{node.root}/asked"',
    )
    said = node.step("access", "login.sh")
    assert "update NodeName=other State=DRAIN Reason=login node: runs no jobs" in node.asked
    assert [line for line in said if line.startswith("waiting until `scontrol --oneliner show node` is answered")]
    node.write("calls", "")
    node.switch_on("access")
    done = node.provision("login.sh", PROVISION_ROOT=str(node.root), PROVISION_ATTEMPTS="2")
    assert "Unable to contact slurm controller (connect failure) (looked 2 times" in done.stdout
    assert done.returncode != 0


def test_a_login_node_is_drained_where_slurm_knows_it_by_its_address_alone(node: Part) -> None:
    node.addresses("127.0.0.1", "10.1.0.11")
    node.write("nodes", "NodeName=p5-1 NodeAddr=10.1.0.21 State=IDLE\nNodeName=door-1 NodeAddr=10.1.0.11 State=IDLE\n")
    node.command("scontrol", f'[[ $1 == --oneliner ]] && cat "{node.root}/nodes" || echo "$*" >>"{node.root}/asked"')
    node.step("access", "login.sh")
    assert "update NodeName=door-1 State=DRAIN Reason=login node: runs no jobs" in node.asked


@pytest.mark.parametrize("address", ["10.1.0.11", "127.0.0.1"])
def test_no_other_node_is_drained(node: Part, address: str) -> None:
    node.addresses("127.0.0.1", "10.1.0.11")
    node.write("nodes", f"NodeName=a NodeAddr={address} State=IDLE\nNodeName=b NodeAddr={address} State=IDLE\n")
    node.command("scontrol", f'[[ $1 == --oneliner ]] && cat "{node.root}/nodes" || echo "$*" >>"{node.root}/asked"')
    node.switch_on("access")
    done = node.provision("login.sh", PROVISION_ROOT=str(node.root))
    assert not [line for line in node.asked if line.startswith("update")]
    several = "Slurm has more than one node that may be this one: a, b; look at NodeAddr in slurm.conf"
    assert (several in done.stdout) == (done.returncode != 0) == (address != "127.0.0.1")


def test_a_login_node_that_slurm_does_not_know_runs_no_job(node: Part) -> None:
    node.addresses("10.1.0.11")
    node.command("scontrol", "echo NodeName=x NodeHostName=x State=IDLE")
    assert "Slurm does not know this node, so no job runs here" in node.step("access", "login.sh")


def test_a_command_that_no_signal_ends_does_not_hold_the_node_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi waits in the kernel for a GPU that fell off its bus, and the step would wait for nvidia-smi."""
    lib = load("lib.py")
    monkeypatch.setattr(lib, "KILLED_S", 0.1)
    left: list[subprocess.Popen[str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(lib.subprocess.Popen, "kill", lambda self: left.append(self))
        assert lib.run("sleep", "600", timeout_s=0.1).returncode == 124
    (process,) = {*left}
    assert process.poll() is None, "it has not been waited for"
    process.kill()
    process.wait()
    assert lib.run("cat", stdin="said", timeout_s=5).stdout == "said"
    assert lib.run("no-such-command").returncode == 127
