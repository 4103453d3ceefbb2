"""Tables of what exists on the engine, and the commands to run next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cdk_hyperpod._lambda.hyperpod.kernel.text import printable
from cdk_hyperpod.cli import tables
from cdk_hyperpod_local import environment, kubectl
from cdk_hyperpod_local.apps import App
from cdk_hyperpod_local.assemblies import Stack
from cdk_hyperpod_local.commands import spelling
from cdk_hyperpod_local.places import Place
from cdk_hyperpod_local.session import LocalAws

Json = Any
_GAP = 2
_WHY = {
    "random": "at random: no node was named",
    "named": "deleted by its id",
    "group-deleted": "its group was deleted",
    "cluster-deleted": "its cluster was deleted",
}
_BETWEEN_STACKS = ("ExportsOutput", "PublishOutput")


def summary(aws: LocalAws, found: Sequence[Stack], terminations: Sequence[Json]) -> str:
    """All tables that have rows, separated by empty lines. Empty if no table has a row."""
    tables = (outputs(aws, found), ended(terminations), clusters(aws), control_planes(aws), file_systems(aws))
    return "\n".join(filter(None, tables))


def outputs(aws: LocalAws, found: Sequence[Stack]) -> str:
    """The outputs of each stack. A value that does not fit beside its name begins on a line of its own, so that it can be copied."""
    client = aws.client("cloudformation")
    blocks = []
    for stack in found:
        (live,) = client.describe_stacks(StackName=stack.name)["Stacks"]
        # CDK also writes an output for every value that another stack reads. These are not for people.
        shown = [item for item in live.get("Outputs", []) if not item["OutputKey"].startswith(_BETWEEN_STACKS)]
        if shown:
            blocks += [_bold(f"OUTPUTS OF {printable(stack.name)}"), *_aligned([_output(item) for item in shown]), ""]
    return "\n".join(blocks)


def _output(item: Json) -> tuple[str, str]:
    return printable(item["OutputKey"]), printable(item["OutputValue"])


def _aligned(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = max(len(name) for name, _ in rows) + _GAP
    for name, value in rows:
        beside = f"  {name.ljust(width)}{value}"
        if len(beside) <= tables.WIDTH:
            yield beside
        else:
            yield f"  {name}"
            yield from tables.wrapped(value, first="    ", rest="    ")


def clusters(aws: LocalAws) -> str:
    client = aws.client("sagemaker")
    rows = []
    for summary in client.list_clusters()["ClusterSummaries"]:
        cluster = client.describe_cluster(ClusterName=summary["ClusterArn"])
        for group in cluster["InstanceGroups"]:
            rows.append(
                (
                    cluster["ClusterName"],
                    group["InstanceGroupName"],
                    group.get("InstanceType", "several"),
                    str(group["CurrentCount"]),
                    str(group.get("MinCount", "-")),
                    str(group["TargetCount"]),
                    group["Status"],
                )
            )
    titles = ("CLUSTER", "GROUP", "INSTANCE TYPE", "CURRENT", "MINIMUM", "TARGET", "STATUS")
    return table(titles, rows, cut=(0, 1, 2), right=(3, 4, 5))


def control_planes(aws: LocalAws) -> str:
    """EKS clusters, and what serves their Kubernetes API."""
    client = aws.client("eks")
    found = [client.describe_cluster(name=name)["cluster"] for name in client.list_clusters()["clusters"]]
    rows = [
        (item["name"], item["version"], item["status"], item.get("endpoint", ""), kubectl.server(aws.place))
        for item in found
    ]
    return table(("EKS CLUSTER", "VERSION", "STATUS", "KUBERNETES API", "SERVED BY"), rows, cut=(0, 4))


def file_systems(aws: LocalAws) -> str:
    found = aws.client("fsx").describe_file_systems()["FileSystems"]
    rows = [
        (
            item["FileSystemId"],
            f"{item['StorageCapacity']} GiB",
            item["LustreConfiguration"].get("DeploymentType", ""),
            item["LustreConfiguration"]["MountName"],
            item["Lifecycle"],
        )
        for item in found
    ]
    return table(("FILE SYSTEM", "CAPACITY", "TYPE", "MOUNT NAME", "STATUS"), rows)


def kept(aws: LocalAws, stack_ids: Sequence[str]) -> str:
    """The resources that the deletion of the stacks skipped."""
    client = aws.client("cloudformation")
    rows = []
    for stack_id in stack_ids:
        for page in client.get_paginator("describe_stack_events").paginate(StackName=stack_id):
            rows += [
                (event["ResourceType"], event.get("PhysicalResourceId", ""))
                for event in page["StackEvents"]
                if event["ResourceStatus"] == "DELETE_SKIPPED"
            ]
    return table(("TYPE", "RESOURCE"), sorted(rows)) if rows else ""


def ended(terminations: Sequence[Json]) -> str:
    """Which nodes were terminated, and why. The guard exists to prevent those that HyperPod chose at random."""
    rows = [
        (item["cluster"], item["group"], item["node_id"], cause(item["cause"]))
        for item in terminations
        if item["node_id"]
    ]
    return table(("CLUSTER", "GROUP", "TERMINATED NODE", "WHY"), sorted(rows), cut=(0, 1))


def cause(found: str) -> str:
    """Why a node was terminated, in words."""
    return _WHY.get(found, found)


def how_to_go_on(place: Place, app: App, seconds: float) -> str:
    config = "" if app.config is None or app.config == app.folder / "cluster.yaml" else str(app.config)
    config = config.removeprefix(f"{app.folder}/")
    other = "" if app.config is None else " (another cluster file: deploy it too)"
    tools = "the aws CLI, boto3, kubectl and helm" if place.kubernetes.exists() else "the aws CLI or boto3"
    lines = [
        (
            spelling.command("diff", place, app=app.given, config=config),
            "show what your next deployment would change, and delete",
        ),
        (spelling.command("deploy", place, app=app.given, config=config), f"update it{other}"),
        (spelling.command("shell", place), f"open a shell for {tools}"),
        (spelling.command("destroy", place), "delete everything, and end the engine"),
    ]
    return "\n".join([f"Deployed in {seconds:.0f} s. The engine keeps running on {place.url}.", *_commands(lines)])


def _commands(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Each command with its text beside it. If one does not fit, all texts are on lines of their own."""
    width = max(len(command) for command, _ in rows) + _GAP
    fits = all(width + _GAP + len(text) <= tables.WIDTH for _, text in rows)
    for command, text in rows:
        shown = [_bold(command.ljust(width)) + text] if fits else [_bold(command), f"    {text}"]
        yield from (f"  {line}" for line in shown)


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, cut: Sequence[int] = (), right: Sequence[int] = ()
) -> str:
    """The lines, with an empty one behind them. Empty without rows."""
    return "\n".join([*lines(titles, rows, cut=cut, right=right), ""]) if rows else ""


def lines(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, cut: Sequence[int] = (), right: Sequence[int] = ()
) -> list[str]:
    """A table. On a terminal that is too narrow, the columns in `cut` are shortened. The other values stay whole."""
    paint: dict[str, str] | None = {} if environment.is_styled() else None
    return tables.table(titles, rows, columns=tables.width(), cut=cut, right=right, paint=paint)


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if environment.is_styled() else text
