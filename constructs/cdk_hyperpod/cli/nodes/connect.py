"""`cdk-hyperpod connect`: a session on a node through SSM, with the target name of HyperPod's nodes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence

import rich_click as click

from ..._lambda.hyperpod.kernel.drain_protocol import INSTANCE_ID
from .. import live, tables
from ..live import LiveError, Node, Target
from ..options import permissions

_PORT_DOCUMENT = "AWS-StartPortForwardingSession"
_SSH_DOCUMENT = "AWS-StartSSHSession"
_PLUGIN = "session-manager-plugin"
_LOGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
"""A login name, with or without its domain. In ssh's file a line break starts another directive, a space another word."""

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
"""An instance id, or a node's name without its domain."""
_TARGET = re.compile(rf"sagemaker-cluster:[A-Za-z0-9]+_[A-Za-z0-9-]+-{INSTANCE_ID}")


@click.command(
    epilog=permissions(
        *("sagemaker:DescribeCluster", "sagemaker:DescribeClusterNode", "sagemaker:ListClusterNodes"),
        *("ssm:StartSession", "ssm:TerminateSession"),
        besides="sagemaker:ListClusterNodes is needed only for a name such as ip-10-1-2-3. Runs the AWS CLI, which needs its "
        "Session Manager plugin; --print and --ssh-config run nothing.\n\nThe exit code is the AWS CLI's. 1: the node cannot be "
        "reached.",
    )
)
@click.argument("name", metavar="NODE")
@click.option("--forward", metavar="PORT", help="Forward a port of the node to this machine: 8888, or LOCAL:REMOTE.")
@click.option(
    "--ssh-config",
    is_flag=True,
    help="Print a block for ~/.ssh/config, with which ssh, scp and editors reach the node.",
)
@click.option("--user", default="ubuntu", metavar="NAME", help="Login name for --ssh-config; default: ubuntu.")
@click.option("--print", "only_print", is_flag=True, help="Print the command without running it.")
@live.target_options
def connect(
    name: str,
    forward: str | None,
    user: str,
    config: str,
    cluster: str | None,
    region: str | None,
    profile: str | None,
    *,
    ssh_config: bool,
    only_print: bool,
) -> None:
    """Open a session on a node, forward one of its ports, or print ssh's settings for it.

    Examples:
        cdk-hyperpod connect i-0123456789abcdef0
        cdk-hyperpod connect ip-10-1-2-3 --ssh-config >> ~/.ssh/config

    NODE is an instance id or a name such as ip-10-1-2-3.
    """
    ports = None if forward is None else _ports(forward)
    if ssh_config and (ports or only_print):
        raise click.UsageError("--ssh-config: cannot be combined with --forward or --print")
    if not _LOGIN.fullmatch(user):
        raise click.UsageError(
            f"--user: must be a login name of letters, digits and . _ - @, got {tables.shown(user, 80)!r}"
        )
    target = live.find(config=config, cluster=cluster, region=region, profile=profile)
    described = live.describe(target)
    node = live.one_node(target, described, name)
    where = session_target(live.cluster_id(described), node)
    if ssh_config:
        tables.say(*ssh_block(target, node, where, user), whole=True)
        return
    command = start_session(target, where, ports)
    if only_print:
        tables.say(shlex.join(command), whole=True)
        return
    _refuse_without_programs()
    if node.status != "Running":
        tables.complain(f"note: {node.name} is {node.status}, so the session may fail")
    sys.stdout.flush()
    os.execvp(command[0], command)


def session_target(cluster_id: str, node: Node) -> str:
    """The name of the node in SSM ("Accessing your SageMaker HyperPod cluster nodes"). Raises LiveError if it is not launched yet."""
    if node.instance_id is None:
        raise LiveError(f"{node.name}: is {node.status} and has no instance yet")
    return f"sagemaker-cluster:{cluster_id}_{node.group}-{node.instance_id}"


def start_session(target: Target, where: str, ports: tuple[int, int] | None = None) -> list[str]:
    """The AWS CLI's command."""
    command = ["aws", "ssm", "start-session", "--target", where, *_credentials(target)]
    if ports is not None:
        local, remote = ports
        parameters = json.dumps({"portNumber": [str(remote)], "localPortNumber": [str(local)]})
        command += ["--document-name", _PORT_DOCUMENT, "--parameters", parameters]
    return command


def ssh_block(target: Target, node: Node, where: str, user: str) -> list[str]:
    """The lines of a block of ~/.ssh/config. Raises LiveError if AWS reports a name that is not a host name: more words and lines in
    this file would be directives for ssh."""
    names = [name for name in (node.instance_id, node.host) if name]
    strange = [name for name in names if not _HOST.fullmatch(name)]
    strange += [] if _TARGET.fullmatch(where) else [where]
    if strange:
        raise LiveError(
            f"{', '.join(tables.shown(name, 80) for name in strange)}: is not a host name. Nothing was printed"
        )
    proxy = ["aws", *_credentials(target), "ssm", "start-session", "--target", "%h", "--document-name", _SSH_DOCUMENT]
    return [
        f"Host {' '.join(names)}",
        f"    HostName {where}",
        f"    User {user}",
        f"    ProxyCommand {shlex.join(proxy)} --parameters portNumber=%p",
    ]


def _credentials(target: Target) -> list[str]:
    return ["--region", target.region, *(["--profile", target.profile] if target.profile else [])]


def _ports(text: str) -> tuple[int, int]:
    """The port here, and the node's."""
    parts: Sequence[str] = text.split(":")
    numbers = [int(part) for part in parts if part.isascii() and part.isdecimal() and len(part) < 6]
    if len(parts) > 2 or len(numbers) != len(parts) or not all(1 <= number <= 65535 for number in numbers):
        raise click.UsageError(
            f"--forward: must be a port from 1 to 65535 such as 8888, or two such as 9000:8888, got {text}"
        )
    return numbers[0], numbers[-1]


def _refuse_without_programs() -> None:
    missing = [program for program in ("aws", _PLUGIN) if shutil.which(program) is None]
    if missing:
        raise LiveError(
            f"{' and '.join(missing)}: not found. Install the AWS CLI and its Session Manager plugin, or run the command that "
            "--print shows where they are installed"
        )
