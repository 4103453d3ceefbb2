"""The lifecycle scripts are run for real, by bash, in a folder that stands for the node."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cdk_hyperpod.scripts.script_folder import checksums, contents
from helpers.lifecycle.node_folder import (
    AUTOMOUNT,
    CLUSTER,
    FSX_MOUNT,
    LIFECYCLE,
    RESOURCE_CONFIG,
    ROOT_MOUNT,
    Node,
    messages,
    the_error,
)
from lifecycle import provision

SCRIPTS = sorted(LIFECYCLE.rglob("*.sh"))
PROGRAMS = sorted(LIFECYCLE.rglob("*.py"))
TOOLS = Path(sys.executable).parent


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("node_type", "address", "found"),
    [
        ("controller", "10.1.0.10", "i-0aaaaaaaaaaaaaaa1 in the instance group head"),
        ("login", "10.1.0.11", "i-0aaaaaaaaaaaaaaa2 in the instance group door"),
        ("compute", "10.1.0.22", "i-0bbbbbbbbbbbbbbb2 in the instance group p5"),
        ("compute", "10.1.0.31", "trn1-1 in the instance group trn1"),
    ],
)
def test_a_node_is_provisioned_by_its_type_s_script(node: Node, node_type: str, address: str, found: str) -> None:
    node.addresses("127.0.0.1", address)
    result = node.provision(f"{node_type}.sh")
    assert messages(result.stdout) == [
        f"INFO on_create.sh: started in {node.scripts}",
        f"INFO provision.py: this node is {found}, node type {node_type}",
        "INFO provision.py: step mounts: 10_verify_mounts.sh /fsx lustre",
        "INFO 10_verify_mounts.sh: /fsx is mounted (lustre)",
        "INFO on_create.sh: ended with exit code 0",
    ]
    assert result.returncode == 0
    assert node.sleeps == []


def test_every_node_type_has_a_script_and_every_such_script_a_node_type() -> None:
    entries = {file.stem for file in LIFECYCLE.glob("*.sh")} - {"on_create", "lib"}
    assert entries == set(provision.NODE_TYPES)


@pytest.mark.parametrize("arguments", [(), ("compute", "mounts", "slurm")], ids=["none", "three"])
def test_without_one_node_type_the_node_fails(node: Node, arguments: tuple[str, ...]) -> None:
    result = node.provision("on_create.sh", *arguments)
    assert the_error(result) == (
        f"ERROR on_create.sh: usage: on_create.sh NODE_TYPE [STEP], got {len(arguments)} arguments; LifeCycleConfig "
        "of the instance group must name controller.sh, login.sh or compute.sh"
    )
    assert result.returncode == 2
    assert "provision.py" not in result.stdout


@pytest.mark.parametrize("node_type", ["worker", "Compute", "", "two words"])
def test_an_unknown_node_type_fails_at_once_and_is_not_taken_for_compute(node: Node, node_type: str) -> None:
    result = node.provision("on_create.sh", node_type)
    assert the_error(result) == (
        f'ERROR provision.py: NODE_TYPE: must be one of controller, login, compute, got "{node_type}"; '
        "correct the script that gave it"
    )
    assert result.returncode == 2
    assert len(messages(result.stdout)) == 2


@pytest.mark.parametrize("with_cluster_file", [True, False])
@pytest.mark.parametrize(
    ("node_type", "address", "group"),
    [("controller", "10.1.0.22", "p5"), ("login", "10.1.0.10", "head"), ("compute", "10.1.0.10", "head")],
)
def test_a_group_whose_script_is_not_what_hyperpod_says_fails(
    node: Node, node_type: str, address: str, group: str, with_cluster_file: bool
) -> None:
    node.addresses("127.0.0.1", address)
    if not with_cluster_file:
        (node.scripts / "cluster.json").unlink()
    result = node.provision(f"{node_type}.sh")
    assert the_error(result) == (
        f"ERROR provision.py: LifeCycleConfig of the instance group '{group}' says {node_type}, but HyperPod says the "
        f"controller is 10.1.0.10 (SlurmConfig in resource_config.json), and this node has the addresses {address}; "
        "correct LifeCycleConfig of the group"
    )
    assert result.returncode == 1
    assert "step" not in result.stdout


def test_all_that_is_printed_is_in_the_log_too(node: Node) -> None:
    first = node.provision().stdout
    assert node.log.read_text() == first
    second = node.provision().stdout
    assert node.log.read_text() == first + second


def test_running_it_again_does_the_same_and_changes_nothing(node: Node) -> None:
    first = node.provision()
    files = {file: file.read_bytes() for file in node.root.rglob("*") if file.is_file() and file != node.log}
    second = node.provision()
    assert (second.returncode, messages(second.stdout)) == (0, messages(first.stdout))
    assert {file: file.read_bytes() for file in node.root.rglob("*") if file.is_file() and file != node.log} == files


def test_it_works_from_another_folder_and_with_spaces_in_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a node").mkdir()
    monkeypatch.chdir("/")
    assert Node(tmp_path / "a node").provision().returncode == 0


def test_it_works_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node").mkdir()
    monkeypatch.chdir(tmp_path)
    assert Node(Path("node")).provision().returncode == 0


def test_without_a_cluster_file_the_node_is_only_looked_up(node: Node) -> None:
    (node.scripts / "cluster.json").unlink()
    node.write("mountinfo", ROOT_MOUNT)
    result = node.provision()
    assert result.returncode == 0
    assert messages(result.stdout)[1:] == [
        "INFO provision.py: this node is i-0bbbbbbbbbbbbbbb2 in the instance group p5, node type compute",
        f"INFO provision.py: there is no {node.scripts / 'cluster.json'}: no step to run",
        "INFO on_create.sh: ended with exit code 0",
    ]


def test_scripts_that_came_whole_run(node: Node) -> None:
    node.write("scripts/scripts.sha256", checksums(contents(LIFECYCLE)))
    assert node.provision().returncode == 0


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("spoil", "what"),
    [(Path.unlink, "steps/20_slurm.py: FAILED open or read"), (cut, "steps/20_slurm.py: FAILED")],
    ids=["absent", "cut"],
)
def test_an_incomplete_upload_fails_the_node_before_any_step(
    node: Node, spoil: Callable[[Path], None], what: str
) -> None:
    node.write("scripts/scripts.sha256", checksums(contents(LIFECYCLE)))
    spoil(node.scripts / "steps" / "20_slurm.py")
    result = node.provision()
    assert the_error(result) == (
        f"ERROR on_create.sh: the upload of the scripts is incomplete ({what}); compare the prefix that SourceS3Uri names "
        "with the folder lifecycle, and upload what differs, with scripts.sha256 where it was meant"
    )
    assert result.returncode == 1
    assert "provision.py" not in result.stdout


def test_sums_that_did_not_come_whole_fail_the_node(node: Node) -> None:
    node.write("scripts/scripts.sha256", "")
    result = node.provision()
    assert "the upload of the scripts is incomplete (scripts.sha256 holds no sums)" in the_error(result)
    assert result.returncode == 1


def test_scripts_with_sums_and_without_their_cluster_fail_the_node(node: Node) -> None:
    node.write("scripts/scripts.sha256", checksums(contents(LIFECYCLE)))
    (node.scripts / "cluster.json").unlink()
    result = node.provision()
    assert "the upload of the scripts is incomplete (cluster.json is absent)" in the_error(result)
    assert result.returncode == 1


def test_sums_that_did_not_come_at_all_fail_the_node(node: Node) -> None:
    """A step that was cut would go unseen."""
    node.write("scripts/cluster.json", json.dumps({**CLUSTER, "checksums": True}))
    cut(node.scripts / "steps" / "10_verify_mounts.sh")
    result = node.provision()
    assert "the upload of the scripts is incomplete (scripts.sha256 is absent)" in the_error(result)
    assert result.returncode == 1
    assert "provision.py" not in result.stdout


def test_a_cluster_without_mounts_runs_no_step(node: Node) -> None:
    node.write("scripts/cluster.json", json.dumps({**CLUSTER, "mounts": []}))
    node.write("mountinfo", ROOT_MOUNT)
    result = node.provision()
    assert result.returncode == 0
    assert "step" not in result.stdout


@pytest.mark.parametrize(
    ("mountinfo", "found"),
    [
        pytest.param(ROOT_MOUNT, "nothing", id="not mounted"),
        pytest.param(ROOT_MOUNT + FSX_MOUNT.replace(" lustre ", " nfs4 "), "nfs4", id="another type"),
        pytest.param(ROOT_MOUNT + FSX_MOUNT.replace("/fsx", "/fsx2"), "nothing", id="another path"),
        pytest.param(FSX_MOUNT + FSX_MOUNT.replace(" lustre ", " tmpfs "), "tmpfs", id="covered by another mount"),
        pytest.param(ROOT_MOUNT + AUTOMOUNT, "autofs", id="an automount that never succeeds"),
    ],
)
def test_a_missing_mount_fails_the_node_after_a_bounded_wait(node: Node, mountinfo: str, found: str) -> None:
    node.write("mountinfo", mountinfo)
    node.command("stat", f"touch {node.root}/touched")
    result = node.provision()
    assert the_error(result) == (
        f"ERROR provision.py: step mounts failed with exit code 1: /fsx is not mounted as lustre, found {found} after 3 checks every 0 s; look at the "
        "file system's status, at TCP ports 988 and 1018-1023 (Lustre) or 2049 (NFS) of its security group, and at the group's "
        f"InstanceStorageConfigs; then run `bash {node.scripts}/compute.sh` again on this node"
    )
    assert result.returncode == 1
    assert node.sleeps == ["0", "0"]
    # A look inside may hang where there is no automount to set off.
    assert (node.root / "touched").exists() == (found == "autofs")


def test_a_mount_that_comes_late_is_waited_for(node: Node) -> None:
    node.write("mountinfo", ROOT_MOUNT)
    node.command("sleep", f"echo '{FSX_MOUNT.strip()}' >>{node.root}/mountinfo")
    result = node.provision()
    assert result.returncode == 0
    assert "INFO 10_verify_mounts.sh: waiting until /fsx is mounted (lustre)" in messages(result.stdout)


def test_an_automount_is_set_off_by_looking_inside(node: Node) -> None:
    node.write("mountinfo", ROOT_MOUNT + AUTOMOUNT)
    node.command("stat", f"[[ $* == '-- /fsx/.' ]] && echo '{FSX_MOUNT.strip()}' >>{node.root}/mountinfo")
    assert node.provision().returncode == 0


@pytest.mark.parametrize("kernel_type", ["nfs", "nfs4"])
def test_nfs_of_either_version_is_nfs(node: Node, kernel_type: str) -> None:
    node.write("scripts/cluster.json", json.dumps({**CLUSTER, "mounts": [{"path": "/home", "type": "nfs"}]}))
    node.write("mountinfo", ROOT_MOUNT + FSX_MOUNT.replace("/fsx", "/home").replace(" lustre ", f" {kernel_type} "))
    assert f"INFO 10_verify_mounts.sh: /home is mounted ({kernel_type})" in messages(node.provision().stdout)


def test_all_mounts_are_verified(node: Node) -> None:
    mounts = [{"path": "/fsx", "type": "lustre"}, {"path": "/home", "type": "nfs4"}]
    node.write("scripts/cluster.json", json.dumps({**CLUSTER, "mounts": mounts}))
    assert "/home is not mounted as nfs4" in the_error(node.provision())


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_the_kernel_s_own_table_is_read_by_default(node: Node) -> None:
    """tmpfs stands for Lustre; the mount is in a namespace of its own and ends with it."""
    fsx = node.root / "fsx"
    fsx.mkdir()
    step = node.scripts / "steps" / "10_verify_mounts.sh"
    program = 'mount -t tmpfs none "$2" || exit 99; PROVISION_ATTEMPTS=1 bash "$1" "$2" tmpfs'
    command = ["unshare", "--mount", "bash", "-c", program, "bash", str(step), str(fsx)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if result.returncode in (1, 99) and "ermission" in result.stderr + result.stdout:
        pytest.skip(f"no mount namespace here: {result.stderr}")
    assert (result.returncode, messages(result.stderr)) == (
        0,
        [f"INFO 10_verify_mounts.sh: {fsx} is mounted (tmpfs)"],
    )


def test_an_unknown_node_fails_and_is_not_taken_for_compute(node: Node) -> None:
    node.addresses("127.0.0.1", "10.9.9.9")
    result = node.provision()
    assert the_error(result).startswith(
        "ERROR provision.py: no instance in resource_config.json has an address of this node (10.9.9.9); compare"
    )
    assert "step" not in result.stdout


def test_a_node_that_hyperpod_lists_late_is_waited_for(node: Node) -> None:
    # `ip` is asked once per look: at the second one the file has the node.
    node.write("resource_config.json", json.dumps({"InstanceGroups": []}))
    node.write("later.json", json.dumps(RESOURCE_CONFIG))
    node.addresses("10.1.0.22")
    ip = node.root / "bin" / "ip"
    ip.write_text(ip.read_text() + f"cp {node.root}/later.json {node.root}/resource_config.json\n", "utf-8")
    result = node.provision()
    assert result.returncode == 0
    assert "provision.py: waiting: no instance in resource_config.json" in result.stdout


def test_a_controller_that_hyperpod_names_late_is_waited_for(node: Node) -> None:
    # Replaced: until the second look the file has the address of the one before.
    node.write("later.json", json.dumps(RESOURCE_CONFIG))
    node.write(
        "resource_config.json", json.dumps({**RESOURCE_CONFIG, "SlurmConfig": {"PrimaryControllerIp": "10.1.0.9"}})
    )
    node.addresses("10.1.0.10")
    ip = node.root / "bin" / "ip"
    ip.write_text(ip.read_text() + f"cp {node.root}/later.json {node.root}/resource_config.json\n", "utf-8")
    result = node.provision("controller.sh")
    assert result.returncode == 0
    assert "waiting: LifeCycleConfig of the instance group 'head' says controller, but HyperPod says" in result.stdout


def test_the_scripts_of_another_cluster_fail(node: Node) -> None:
    node.write("scripts/cluster.json", json.dumps({**CLUSTER, "cluster_name": "other"}))
    assert "cluster 'other', and this node is in 'llm-train'" in the_error(node.provision())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "resource_config.json cannot be read: [Errno 2]", id="missing"),
        pytest.param("", "resource_config.json cannot be read: Expecting value", id="empty"),
        pytest.param('{"InstanceGroups": ', "resource_config.json cannot be read: Expecting value", id="cut off"),
        pytest.param('"text"', "does not have HyperPod's form", id="not an object"),
    ],
)
def test_a_bad_resource_config_fails(node: Node, content: str | None, message: str) -> None:
    if content is None:
        (node.root / "resource_config.json").unlink()
    else:
        node.write("resource_config.json", content)
    assert message in the_error(node.provision())


def test_a_bad_cluster_file_fails_at_once(node: Node) -> None:
    node.write("scripts/cluster.json", "{")
    result = node.provision()
    assert "cluster.json cannot be read" in the_error(result)
    assert "waiting" not in result.stdout


@pytest.mark.parametrize("body", ["exit 1", "echo nonsense"])
def test_addresses_that_cannot_be_read_fail(node: Node, body: str) -> None:
    node.command("ip", body)
    assert "`ip -json address show` does not tell this node's addresses" in the_error(node.provision())


def test_a_machine_without_python_fails(node: Node) -> None:
    only = node.root / "only"
    only.mkdir()
    for name in ("bash", "date", "dirname", "mkdir", "tee"):
        (only / name).symlink_to(shutil.which(name) or name)
    assert f"python3 is not on the PATH ({only}:/usr/sbin:/sbin:/opt/slurm/bin:/opt/slurm/sbin)" in the_error(
        node.provision(PATH=str(only))
    )


def test_a_step_s_own_exit_code_is_that_of_the_script(node: Node) -> None:
    node.write("scripts/steps/10_verify_mounts.sh", "exit 37\n")
    result = node.provision()
    assert result.returncode == 37
    assert messages(result.stdout)[-2:] == [
        "INFO provision.py: step mounts: 10_verify_mounts.sh /fsx lustre",
        (
            "ERROR provision.py: step mounts failed with exit code 37: see above; "
            f"then run `bash {node.scripts}/compute.sh` again on this node"
        ),
    ]


def test_an_unforeseen_failure_in_a_step_names_the_line_and_the_exit_code(node: Node) -> None:
    node.write(
        "scripts/steps/10_verify_mounts.sh",
        'set -Eeuo pipefail\nsource "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"\nreport_errors\n'
        'broken() {\n\tlocal value\n\tvalue=$(bash -c "exit 41")\n\techo "$value"\n}\nbroken\n',
    )
    result = node.provision()
    assert 'step mounts failed with exit code 41: line 6: exit code 41: value=$(bash -c "exit 41"); ' in the_error(
        result
    )
    assert result.returncode == 41


def test_an_unforeseen_failure_in_on_create_names_the_line_and_the_exit_code(node: Node) -> None:
    script = (node.scripts / "on_create.sh").read_text()
    node.write(
        "scripts/on_create.sh", script.replace("\tcommand -v python3", '\tbash -c "exit 42"\n\tcommand -v python3', 1)
    )
    result = node.provision()
    assert re.fullmatch(r'ERROR on_create\.sh: line \d+: exit code 42: bash -c "exit 42"', the_error(result))
    assert result.returncode == 42


def test_a_step_that_is_killed_fails_the_node(node: Node) -> None:
    node.write("scripts/steps/10_verify_mounts.sh", "kill -KILL $$\n")
    result = node.provision()
    assert result.returncode == 137
    assert "step mounts was ended by signal 9: see above; then run" in the_error(result)


def test_a_step_called_wrongly_says_how(node: Node) -> None:
    step = str(node.scripts / "steps" / "10_verify_mounts.sh")
    result = subprocess.run(["bash", step, "/fsx"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert messages(result.stderr) == [
        "ERROR 10_verify_mounts.sh: usage: 10_verify_mounts.sh PATH TYPE [PATH TYPE]..., got 1 arguments"
    ]


def test_a_log_that_cannot_be_written_does_not_fail_the_node(node: Node) -> None:
    node.write("file", "")
    result = node.provision(PROVISION_LOG=str(node.root / "file" / "provisioning.log"))
    assert result.returncode == 0
    assert "WARNING on_create.sh: there is no folder for" in result.stdout
    assert result.stdout.endswith("ended with exit code 0\n")


def test_the_log_is_for_root(node: Node) -> None:
    """Also one of an earlier version, which everybody could read."""
    log = node.root / "provisioning.log"
    log.write_text("before\n")
    log.chmod(0o644)
    node.provision(PROVISION_LOG=str(log))
    assert log.read_text().startswith("before\n")
    assert log.stat().st_mode & 0o777 == 0o640


def test_one_step_can_be_run_again_alone(node: Node) -> None:
    both = {**CLUSTER, "steps": {**CLUSTER["steps"], "slurm": True}}
    node.write("scripts/cluster.json", json.dumps(both))
    node.write("scripts/steps/20_slurm.py", "raise SystemExit(3)\n")
    assert node.provision("compute.sh").returncode == 3
    assert node.provision("compute.sh", "mounts").returncode == 0


@pytest.mark.parametrize(("conf", "steps"), [(True, ["slurm_conf", "accounting"]), (False, ["accounting"])])
def test_accounts_bring_along_the_line_that_enforces_them(node: Node, conf: bool, steps: list[str]) -> None:
    switches = {**CLUSTER["steps"], "slurm_conf": conf, "accounting": True}
    node.write("scripts/cluster.json", json.dumps({**CLUSTER, "steps": switches, "accounts": [{"name": "research"}]}))
    for script in ("35_slurm_conf.py", "40_accounting.py"):
        node.write(f"scripts/steps/{script}", "")
    node.addresses("10.1.0.10")
    done = node.provision("controller.sh", "accounting")
    assert done.returncode == 0
    assert [line.split("step ")[1].split(":")[0] for line in messages(done.stdout) if " step " in line] == steps


def test_an_unknown_step_is_refused(node: Node) -> None:
    result = node.provision("compute.sh", "mount")
    assert the_error(result).startswith("ERROR provision.py: STEP: must be one of mounts, efa, clock, ")
    assert result.returncode == 2


def test_a_step_that_is_switched_off_is_not_run_when_asked_for(node: Node) -> None:
    result = node.provision("compute.sh", "slurm")
    assert result.returncode == 0
    assert "this node has no step slurm: it is switched off, or of no use on a compute node" in result.stdout


DRAIN = {"bucket": "hyperpod-drain-small-111122223333-us-west-2", "region": "us-west-2", "backup": None}


OWN = {"scripts": ["scripts_before"], "region": "us-west-2"}
HOOKS = {"prolog": 1, "hook_seconds": 60}


def test_every_step_that_can_be_asked_for_exists() -> None:
    asked = {
        step.script
        for node_type in provision.NODE_TYPES
        for step in provision.steps_for(
            provision.parse_cluster(
                {
                    **CLUSTER,
                    "steps": {},
                    "accounts": [{"name": "research"}],
                    "drain": DRAIN,
                    "own_scripts": OWN,
                    "slurm": HOOKS,
                    "lustre_efa": True,
                    "keep_state": True,
                }
            ),
            provision.Node(node_type, provision.Instance("g", "i", frozenset())),
        )
    }
    assert asked == {file.name for file in (LIFECYCLE / "steps").iterdir() if file.is_file()}


def test_modes_and_line_endings() -> None:
    executable = {file.name for file in LIFECYCLE.rglob("*") if file.is_file() and os.access(file, os.X_OK)}
    entries = {"controller.sh", "login.sh", "compute.sh", "node.sh"}
    steps = {file.name for file in (LIFECYCLE / "steps").iterdir() if file.is_file()}
    assert executable == {
        *entries,
        *steps,
        "on_create.sh",
        "provision.py",
        "slurm_conf.py",
        "keep_state.py",
        "partitions.py",
        "run_hooks.py",
        "drain_agent.py",
    }
    for file in [*SCRIPTS, *PROGRAMS]:
        assert b"\r" not in file.read_bytes()
        assert file.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_shell_code_is_clean(script: Path) -> None:
    for command in (["bash", "-n"], [str(TOOLS / "shellcheck"), "-x"], [str(TOOLS / "shfmt"), "-d"]):
        result = subprocess.run([*command, str(script)], capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
