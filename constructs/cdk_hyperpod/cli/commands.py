"""Every command: its module, and its line in the overview. The overview loads nothing else."""

from __future__ import annotations

PROGRAM = "cdk-hyperpod"
CDK_CLI = "2.1148.1"
"""The version of the CDK CLI in package.json. The overview reads no file."""

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "The cluster file": {
        "init": ("cluster_file.init", "create a new app in the current folder"),
        "check": ("cluster_file.check", "list all errors and warnings of a cluster file"),
        "schema": ("cluster_file.schema", "print the JSON schema of cluster files, for editors"),
    },
    "A deployment": {
        "preflight": ("deployment.preflight", "check whether the account can have the cluster of a file"),
        "cost": ("deployment.cost", "show what the cluster costs per hour and per month"),
        "credentials": ("deployment.credentials", "check that AWS credentials can be found"),
        "plan": ("deployment.plan", "show which nodes a deployment would delete, and why"),
        "why": ("deployment.why", "show why the last deployment failed"),
        "retained": ("deployment.retained", "show what remains after cdk destroy, and what it costs"),
        "local": ("deployment.local", "rehearse a deployment on this machine"),
    },
    "The nodes": {
        "nodes": ("nodes.nodes", "list nodes: status, image, age, zone; name them in the file"),
        "connect": ("nodes.connect", "open a session on a node, forward a port, or print ssh's settings"),
        "logs": ("nodes.logs", "print what a node's lifecycle scripts and health agent logged"),
        "watch": ("nodes.watch", "follow the cluster until it is ready, or show why it is not"),
        "patch": ("patch.patch", "update nodes to a new image, drained first"),
        "replace": ("nodes.repair", "replace nodes with new instances"),
        "reboot": ("nodes.repair", "reboot nodes"),
        "drain": ("nodes.drain", "drain Slurm nodes, and save their data"),
        "undrain": ("nodes.drain", "release nodes that `drain` drained"),
        "lifecycle": ("nodes.lifecycle", "run a lifecycle step again on running nodes"),
    },
    "Jobs": {
        "job": ("job.job", "write a training job as YAML, elastic or of one size"),
    },
    "The tool": {
        "docs": ("docs", "print the folder of the documentation"),
        "completion": ("completion", "print the completion script for bash, zsh or fish"),
    },
}
"""Heading -> command -> (module of this package, what it does). The module has the command under its own name."""

_HEAD = f"""\
Usage: {PROGRAM} COMMAND [OPTIONS] …

Create, check, rehearse and look after SageMaker HyperPod clusters in AWS CDK.

Start in an empty folder:
  {PROGRAM} init           create a new app; then edit cluster.yaml
  {PROGRAM} check          list all errors of cluster.yaml
  {PROGRAM} local deploy   rehearse on this machine, without an account
  {PROGRAM} plan           show which nodes a deployment would delete
Deploy with CDK (also: diff, and destroy --all):
  npx -y aws-cdk@{CDK_CLI} deploy --all    in a clone: cdk deploy --all
For another file than cluster.yaml, add -c config=PATH to cdk, and --config PATH
here.
"""
_FOOT = f"""\
{PROGRAM} COMMAND --help explains a command. Exit code 0: done; 1: failed,
with a message; 2: wrong usage; 130: interrupted; others: see its --help.
"""
_BOLD, _PLAIN = "\033[1m", "\033[0m"


def overview(*, colour: bool) -> str:
    """The text of `--help` without a command, in 80 columns."""
    bold, plain = (_BOLD, _PLAIN) if colour else ("", "")
    width = max(len(name) for group in COMMANDS.values() for name in group)
    lines = [_HEAD]
    for heading, group in COMMANDS.items():
        lines += [f"{bold}{heading}{plain}"]
        lines += [f"  {name:<{width}}  {text}" for name, (_, text) in group.items()]
        lines += [""]
    return "\n".join([*lines, _FOOT])
