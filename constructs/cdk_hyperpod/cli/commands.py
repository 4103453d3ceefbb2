"""Every command by its name: where it is, and what the overview says of it. Nothing else is loaded for the overview."""

from __future__ import annotations

PROGRAM = "cdk-hyperpod"

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "The cluster file": {
        "init": ("cluster_file.init", "write the files of a new app into the current folder"),
        "check": ("cluster_file.check", "say everything that is wrong with a cluster file"),
        "schema": ("cluster_file.schema", "print the JSON schema of cluster files, for editors"),
    },
    "A deployment": {
        "preflight": ("deployment.preflight", "say whether the account can have the cluster of a file"),
        "cost": ("deployment.cost", "say what the cluster of a file costs an hour and a month"),
        "credentials": ("deployment.credentials", "say whether there are AWS credentials to deploy with"),
        "plan": ("deployment.plan", "say what a deployment would take away from the live cluster"),
        "why": ("deployment.why", "say why the last deployment failed"),
        "retained": ("deployment.retained", "say what stays after cdk destroy, and what it costs"),
        "local": ("deployment.local", "rehearse a deployment on an AWS on this machine"),
    },
    "The nodes": {
        "nodes": ("nodes.nodes", "list nodes: status, image, age, zone; name them in the file"),
        "connect": ("nodes.connect", "open a session on a node, forward a port, or print ssh's settings"),
        "logs": ("nodes.logs", "print what a node's lifecycle scripts and health agent logged"),
        "watch": ("nodes.watch", "follow the cluster until it is ready, or say why it is not"),
        "replace": ("nodes.repair", "give nodes new instances"),
        "reboot": ("nodes.repair", "reboot nodes"),
        "drain": ("nodes.drain", "drain Slurm nodes, and save their data, before they go"),
        "undrain": ("nodes.drain", "put nodes that `drain` asked for back to work"),
        "lifecycle": ("nodes.lifecycle", "run one lifecycle step again on running nodes"),
    },
    "Jobs": {
        "job": ("job.job", "write a training job as YAML, elastic or of one size"),
    },
    "The tool": {
        "docs": ("docs", "print the folder of the pages that messages name, as docs/eks.md"),
        "completion": ("completion", "print what makes bash, zsh or fish complete commands and options"),
    },
}
"""Heading -> command -> (module of this package, what it does). The module has the command under its own name."""

REMOVED = {"denied": "docs/deploying.md has a query in its place, under What closed means"}
"""Command that is no more -> what to use instead."""

_HEAD = f"""\
Usage: {PROGRAM} COMMAND [OPTIONS] …

Create, check, rehearse and look after SageMaker HyperPod clusters in AWS CDK.

Begin in an empty folder:
  {PROGRAM} init           a new app; then edit cluster.yaml
  {PROGRAM} check          everything that is wrong with it, at once
  {PROGRAM} local deploy   a rehearsal on this machine, without an account
  {PROGRAM} plan           the nodes that a deployment would take, and why
CDK deploys: cdk diff, cdk deploy --all, cdk destroy --all. Another file than
cluster.yaml is -c config=PATH for cdk, and --config PATH here.
"""
_FOOT = f"""\
{PROGRAM} COMMAND --help explains a command. Exit code: 0 done; 1 something
is wrong, in one message; 2 wrong usage; 130 interrupted; others: see --help.
"""
_BOLD, _PLAIN = "\033[1m", "\033[0m"


def overview(*, colour: bool) -> str:
    """What `--help` says without a command, in 80 columns."""
    bold, plain = (_BOLD, _PLAIN) if colour else ("", "")
    width = max(len(name) for group in COMMANDS.values() for name in group)
    lines = [_HEAD]
    for heading, group in COMMANDS.items():
        lines += [f"{bold}{heading}{plain}"]
        lines += [f"  {name:<{width}}  {text}" for name, (_, text) in group.items()]
        lines += [""]
    return "\n".join([*lines, _FOOT])
