"""Step efa, run for real in a folder that stands for the node. Its commands keep the state of LNet and of the mounts in files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdk_hyperpod._common.assets import pack_eks_lifecycle
from helpers.lifecycle.node_folder import CLUSTER, ROOT_MOUNT, Node, messages
from helpers.lifecycle.programs import load

efa = load("steps/12_efa.py")
MOUNTED = "96 23 0:54 / /fsx rw,noatime shared:62 - lustre 10.1.0.99@tcp:/abcdefgh rw,checksum,flock,nouser_xattr\n"
ASKED = 'echo "${0##*/} $*" >>$root/asked\n'
COMMANDS = {
    "lnetctl": r"""
case "$*" in
	'net show -v --net efa')
		if [[ ! -s $root/lnet ]]; then echo 'show: - net: errno: -2'; exit 254; fi
		count=$(($(cat $root/count) + $(cat $root/step))); echo $count >$root/count
		while read -r device; do
			printf '    - nid: 10.1.0.22@efa\n  status: up\n  interfaces:\n    0: %s\n  statistics:\n    send_count: %d\n    recv_count: %d\n' $device $count $count
		done <$root/lnet ;;
	'net show --net tcp') printf 'net:\n - net type: tcp\n   - nid: 10.1.0.22@tcp\n     interfaces:\n       0: ens5\n' ;;
	'net add --net efa'*) if [[ -e $root/refuse ]]; then echo 'cannot add: -22'; exit 1; fi; echo "$6" >>$root/lnet ;;
	'net del --net efa') rm $root/lnet ;;
esac""",
    "umount": "grep -v ' lustre ' $root/mountinfo >$root/rest; mv $root/rest $root/mountinfo",
    "mount": f"if [[ -e $root/no-mount && -s $root/lnet ]]; then echo 'mount.lustre: Input/output error'; exit 5; fi\necho '{MOUNTED.strip()}' >>$root/mountinfo",
    "modprobe": "",
    "modinfo": "",
    "uname": "echo 6.8.0-1031-aws",
    "pgrep": "exit 1",
    "systemctl": "[[ $1 != is-active ]]",
    "ip": """echo '[{"dev": "ens5"}]'""",
}


class EfaNode(Node):
    """A P5 node with a mounted Lustre file system that LNet reaches over TCP."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, body in COMMANDS.items():
            self.fake(name, body)
        self.write("mountinfo", ROOT_MOUNT + MOUNTED)
        self.write("count", "0")
        self.write("step", "100")
        self.write("etc/os-release", 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"\n')
        (self.root / "fsx").mkdir()
        driver = self.root / "sys/bus/pci/drivers/efa"
        driver.mkdir(parents=True)
        for number in range(32):
            device = self.root / f"sys/class/infiniband/rdmap{number:02}s0/device"
            device.mkdir(parents=True)
            (device / "driver").symlink_to(driver)

    def write(self, name: str, content: str) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        super().write(name, content)

    def fake(self, name: str, body: str, *, noted: bool = True) -> None:
        self.command(name, f"root={self.root}\n{ASKED if noted else ''}{body}")

    def step(self, action: str = "configure", *paths: str, code: int = 0) -> list[str]:
        """Run the step. What it logs, without its name."""
        done = subprocess.run(
            [
                sys.executable,
                "-B",
                str(self.scripts / "steps/12_efa.py"),
                action,
                "ml.p5.48xlarge",
                *(paths or ("/fsx",)),
            ],
            env={
                "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                "PYTHONPATH": str(self.scripts),
                "PROVISION_ROOT": str(self.root),
                "PROVISION_MOUNTINFO": str(self.root / "mountinfo"),
                "PROVISION_DELAY_S": "0",
                "PROVISION_ATTEMPTS": "2",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return [line.replace(" 12_efa.py:", "") for line in messages(done.stdout) if ": wrote " not in line]

    @property
    def asked(self) -> list[str]:
        """What changes the node, in order."""
        lines = (self.root / "asked").read_text().splitlines() if (self.root / "asked").exists() else []
        asks = (
            "lnetctl net show",
            "lnetctl --version",
            "lnetctl udsp show",
            "modinfo",
            "uname",
            "pgrep",
            "ip ",
            "systemctl is-",
        )
        return [line for line in lines if not line.startswith(asks)]

    @property
    def devices(self) -> list[str]:
        return (self.root / "lnet").read_text().split() if (self.root / "lnet").exists() else []

    @property
    def is_mounted(self) -> bool:
        return MOUNTED in (self.root / "mountinfo").read_text()

    def is_as_before(self) -> bool:
        """Mounted over TCP, also after a reboot."""
        unit = "systemctl enable cdk-hyperpod-efa.service"
        return self.is_mounted and not self.devices and unit not in self.asked


@pytest.fixture
def node(tmp_path: Path) -> EfaNode:
    return EfaNode(tmp_path)


def test_on_its_first_start_a_node_is_unmounted_configured_and_mounted_as_it_was(node: EfaNode) -> None:
    assert node.step() == ["INFO /fsx uses EFA: 8 interfaces sent 800 messages of a test"]
    devices = [f"rdmap{number:02}s0" for number in range(0, 32, 4)]
    assert node.asked == [
        "umount /fsx",
        "modprobe lnet",
        "lnetctl lnet configure",
        "modprobe kefalnd ipif_name=ens5",
        *(f"lnetctl net add --net efa --if {device} --peer-credits 32" for device in devices),
        "lnetctl set discovery 1",
        "lnetctl udsp add --src efa --priority 0",
        "modprobe lustre",
        "mount -t lustre -o rw,noatime,flock,nouser_xattr 10.1.0.99@tcp:/abcdefgh /fsx",
        "systemctl daemon-reload",
        "systemctl enable cdk-hyperpod-efa.service",
    ]
    assert "boot ml.p5.48xlarge" in (node.root / "etc/systemd/system/cdk-hyperpod-efa.service").read_text()
    assert not list((node.root / "fsx").iterdir()), "the test file is gone"


def test_a_second_run_only_verifies(node: EfaNode) -> None:
    node.step()
    before = node.asked
    assert node.step() == ["INFO /fsx uses EFA: 8 interfaces sent 800 messages of a test"]
    assert node.asked == before


def test_an_lnet_that_hyperpod_configured_is_kept(node: EfaNode) -> None:
    node.write("lnet", "rdmap00s0\nrdmap16s0\n")
    assert node.step() == ["INFO /fsx uses EFA: 2 interfaces sent 200 messages of a test"]
    assert node.asked == []


def test_lifecycle_run_configures_nothing(node: EfaNode) -> None:
    reason = "LNet has no EFA interface, and only the first start of a node configures it; replace the node"
    assert node.step("verify") == [f"WARNING Lustre uses TCP on this node: {reason}"]
    assert node.asked == []


def test_a_node_that_was_tried_before_is_not_tried_again(node: EfaNode) -> None:
    node.write("refuse", "")
    node.step()
    (node.root / "refuse").unlink()
    (node.root / "asked").unlink()
    assert "only the first start of a node configures it" in node.step()[0]
    assert node.asked == []


JOB = "echo '811 slurmstepd: [7.batch]'"
IMPOSSIBLE = [
    pytest.param({"uname": "echo 5.15.0-1084-aws"}, "the kernel is 5.15.0-1084-aws, and on Ubuntu AWS's Lustre client needs 6.8 or later for EFA; use a newer image", id="old kernel"),
    pytest.param({"modinfo": "exit 1"}, "the image's Lustre client has no module kefalnd for this kernel; use a newer image", id="no module"),
    pytest.param({"lnetctl": "exit 127"}, "the image has no lnetctl, which is part of the Lustre client; use a newer image", id="no client"),
    pytest.param({"pgrep": JOB}, "a job runs on the node; replace the node when it has ended", id="a job"),
]  # fmt: skip


@pytest.mark.parametrize(("commands", "reason"), IMPOSSIBLE)
def test_where_it_is_impossible_nothing_is_touched(node: EfaNode, commands: dict[str, str], reason: str) -> None:
    for name, body in commands.items():
        node.fake(name, body)
    assert node.step() == [f"WARNING Lustre uses TCP on this node: {reason}"]
    assert node.asked == []
    assert node.is_as_before()


def test_a_node_without_an_adapter_is_no_warning(node: EfaNode) -> None:
    (node.root / "sys/class/infiniband").rename(node.root / "sys/none")
    assert node.step() == ["INFO Lustre uses TCP on this node: the node has no EFA adapter"]
    assert node.asked == []


def test_another_mount_keeps_lnet_as_it_is(node: EfaNode) -> None:
    node.write("mountinfo", ROOT_MOUNT + MOUNTED + MOUNTED.replace(" /fsx ", " /data "))
    assert node.step()[0].endswith("LNet is in use by what is mounted at /fsx, /data; replace the node")
    assert node.asked == []


FAILING = [
    pytest.param({"umount": "echo 'umount: /fsx: target is busy.'; exit 32"}, "", "/fsx cannot be unmounted: umount: /fsx: target is busy.; replace the node", id="an open file"),
    pytest.param({"modprobe": "if [[ $1 == kefalnd ]]; then echo 'modprobe: ERROR: Unknown symbol'; exit 1; fi"}, "", "`modprobe kefalnd ipif_name=ens5` failed: modprobe: ERROR: Unknown symbol; look at `dmesg`", id="a module that does not fit"),
    pytest.param({}, "refuse", "LNet accepts no EFA device: rdmap28s0: cannot add: -22; look at `dmesg`", id="no device accepted"),
    pytest.param({}, "no-mount", "/fsx could not be mounted over EFA: mount.lustre: Input/output error", id="no mount over EFA"),
]  # fmt: skip


@pytest.mark.parametrize(("commands", "file", "reason"), FAILING)
def test_a_failed_efa_setup_leaves_the_mount_on_tcp(
    node: EfaNode, commands: dict[str, str], file: str, reason: str
) -> None:
    for name, body in commands.items():
        node.fake(name, body)
    if file:
        node.write(file, "")
    assert node.step() == [f"WARNING Lustre uses TCP on this node: {reason}"]
    assert node.is_as_before()


@pytest.mark.parametrize(
    ("file", "says"),
    [
        pytest.param("var", "WARNING Lustre uses TCP on this node: [Errno 20] Not a directory", id="its note"),
        pytest.param("etc/systemd/system", "WARNING Lustre will use TCP after a reboot: [Errno 17] File exists", id="its unit"),
    ],
)  # fmt: skip
def test_a_disk_that_takes_no_file_fails_no_node(node: EfaNode, file: str, says: str) -> None:
    node.write(file, "a file where a folder should be")
    assert next(line for line in node.step() if "WARNING" in line).startswith(says)
    assert node.is_mounted


def test_counters_that_do_not_move_undo_it(node: EfaNode) -> None:
    """Security groups that do not let EFA through: each message would wait for its time limit first."""
    node.write("step", "1")
    (line,) = node.step()
    assert line.startswith(
        "WARNING Lustre uses TCP on this node: of a test of 32 MiB EFA sent 8 and received 8 messages; look at the rules"
    )
    assert node.is_as_before()
    assert node.asked[-3:] == [
        "umount /fsx",
        "lnetctl net del --net efa",
        "mount -t lustre -o rw,noatime,flock,nouser_xattr 10.1.0.99@tcp:/abcdefgh /fsx",
    ]


def test_a_file_system_that_takes_no_test_file_stays_mounted(node: EfaNode) -> None:
    (node.root / "fsx").rmdir()
    (line,) = node.step()
    assert line.startswith(
        "WARNING whether /fsx uses EFA is not known: a test file cannot be written: FileNotFoundError"
    )
    assert node.is_mounted and len(node.devices) == 8


def test_only_a_node_that_lost_its_mount_fails_and_it_runs_no_job(node: EfaNode) -> None:
    node.fake("systemctl", "true")
    node.fake("mount", "echo 'mount.lustre: No such device'; exit 19")
    assert node.step(code=1) == ["ERROR /fsx cannot be mounted again: mount.lustre: No such device; replace the node"]
    assert "systemctl start slurmd.service" not in node.asked


def test_a_step_that_gets_sigterm_mounts_the_file_system_before_it_ends(node: EfaNode) -> None:
    """HyperPod may give up on a node's script. Without its file system the node could not be tried again."""
    node.fake("umount", f"{COMMANDS['umount']}; kill -TERM $PPID")
    assert node.step() == ["INFO /fsx uses EFA: 8 interfaces sent 800 messages of a test"]
    assert node.is_mounted


def test_no_job_starts_meanwhile(node: EfaNode) -> None:
    node.fake("systemctl", "true")
    node.step()
    stop, start = node.asked.index("systemctl stop slurmd.service"), node.asked.index("systemctl start slurmd.service")
    assert stop < node.asked.index("umount /fsx") < start
    assert node.asked[start - 1].startswith("mount ")


def test_a_job_that_started_just_before_keeps_its_mount(node: EfaNode) -> None:
    node.fake("systemctl", "[[ $1 != stop ]] || touch $root/late")
    node.fake("pgrep", f"[[ -e $root/late ]] && {JOB}")
    assert node.step()[0].endswith("a job has begun on the node; replace the node when it has ended")
    assert node.asked == ["systemctl stop slurmd.service", "systemctl start slurmd.service"]
    assert node.is_as_before()


def test_a_mount_of_fstab_and_of_systemd_is_mounted_by_them(node: EfaNode) -> None:
    node.write(
        "etc/fstab", "# comment\n10.1.0.99@tcp:/abcdefgh /fsx lustre noatime,flock,_netdev,x-systemd.automount 0 0\n"
    )
    node.write(
        "mountinfo", ROOT_MOUNT + MOUNTED.replace("lustre 10.1.0.99@tcp:/abcdefgh", "autofs systemd-1") + MOUNTED
    )
    node.fake("systemd-escape", "echo fsx.automount", noted=False)
    node.step()
    assert [line for line in node.asked if "mount" in line] == [
        "umount /fsx",
        "systemctl stop fsx.automount",
        "systemctl start fsx.automount",
        "mount /fsx",
    ]


# -- after a reboot ---------------------------------------------------------------------------------------------------


def test_after_a_reboot_lnet_is_configured_before_anything_is_mounted(node: EfaNode) -> None:
    node.write("mountinfo", ROOT_MOUNT)
    assert node.step("boot") == []
    assert len(node.devices) == 8
    assert not [line for line in node.asked if "mount" in line]


def test_after_a_reboot_a_mounted_file_system_is_left_alone(node: EfaNode) -> None:
    assert "a file system was mounted before LNet was configured" in node.step("boot")[0]
    assert node.asked == []


# -- from the node's script -------------------------------------------------------------------------------------------


def test_the_step_runs_if_the_file_system_is_made_for_efa(node: EfaNode) -> None:
    node.addresses("10.1.0.22")
    steps = {**CLUSTER["steps"], "efa": True}
    node.write("scripts/cluster.json", json.dumps({**CLUSTER, "steps": steps, "lustre_efa": True}))
    done = node.provision("compute.sh", "efa", PROVISION_ROOT=str(node.root))
    assert done.returncode == 0
    assert "step efa: 12_efa.py verify ml.p5.48xlarge /fsx" in done.stdout
    done = node.provision(PROVISION_ROOT=str(node.root))
    assert "step efa: 12_efa.py configure ml.p5.48xlarge /fsx" in done.stdout
    assert "/fsx uses EFA: 8 interfaces" in done.stdout
    node.write("scripts/cluster.json", json.dumps({**CLUSTER, "steps": steps}))
    assert "step efa" not in node.provision(PROVISION_ROOT=str(node.root)).stdout


def test_under_eks_lnet_is_ready_before_pods_mount(node: EfaNode) -> None:
    node.addresses("10.1.0.22")
    pack_eks_lifecycle(node.scripts)
    node.write("scripts/cluster.json", json.dumps({"cluster_name": "llm-train", "lustre_efa": True, "mounts": []}))
    node.write("mountinfo", ROOT_MOUNT)
    node.fake("mountpoint", "exit 1", noted=False)
    node.fake("lsblk", "echo '{\"blockdevices\": []}'", noted=False)
    done = node.provision("node.sh", PROVISION_ROOT=str(node.root))
    assert done.returncode == 0, done.stdout
    assert "LNet uses EFA for what is mounted from now on" in done.stdout
    assert len(node.devices) == 8
    assert (
        "LNet has 8 EFA interfaces for the mounts of pods"
        in node.provision("node.sh", PROVISION_ROOT=str(node.root)).stdout
    )


# -- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance_type", "devices", "expected"),
    [
        ("ml.p5.48xlarge", 32, [0, 4, 8, 12, 16, 20, 24, 28]),
        ("ml.p5en.48xlarge", 16, [0, 2, 4, 6, 8, 10, 12, 14]),
        ("ml.p6-b200.48xlarge", 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("ml.p5.48xlarge", 3, [0, 1, 2]),
        ("ml.trn1.32xlarge", 8, [0, 4]),
        ("ml.g6.8xlarge", 1, [0]),
        ("-", 4, [0, 2]),
    ],
)
def test_as_many_devices_as_aws_configures_spread_over_the_cards(
    instance_type: str, devices: int, expected: list[int]
) -> None:
    names = [f"rdmap{number}" for number in range(devices)]
    assert efa.chosen(names, instance_type) == [names[number] for number in expected]
