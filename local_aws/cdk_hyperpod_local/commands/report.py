"""Tables of what exists on the engine, and the commands to run next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdk_hyperpod._lambda.hyperpod.common.text import printable
from cdk_hyperpod_local import environment, kubectl
from cdk_hyperpod_local.apps import App
from cdk_hyperpod_local.assemblies import Stack
from cdk_hyperpod_local.commands import spelling
from cdk_hyperpod_local.places import Place
from cdk_hyperpod_local.session import LocalAws

Json = Any
_GAP = 2
_WHY = {
    "random": "at random: a count was lowered without naming a node",
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
    client = aws.client("cloudformation")
    rows = []
    for stack in found:
        (live,) = client.describe_stacks(StackName=stack.name)["Stacks"]
        # CDK also writes an output for every value that another stack reads. These are not for people.
        shown = [output for output in live.get("Outputs", []) if not output["OutputKey"].startswith(_BETWEEN_STACKS)]
        rows += [(stack.name, output["OutputKey"], output["OutputValue"]) for output in shown]
    return table(("STACK", "OUTPUT", "VALUE"), rows)


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
    return table(("CLUSTER", "GROUP", "INSTANCE TYPE", "CURRENT", "MINIMUM", "TARGET", "STATUS"), rows)


def control_planes(aws: LocalAws) -> str:
    """EKS clusters, and what serves their Kubernetes API."""
    client = aws.client("eks")
    found = [client.describe_cluster(name=name)["cluster"] for name in client.list_clusters()["clusters"]]
    rows = [
        (item["name"], item["version"], item["status"], item.get("endpoint", ""), kubectl.server(aws.place))
        for item in found
    ]
    return table(("EKS CLUSTER", "VERSION", "STATUS", "KUBERNETES API", "SERVED BY"), rows)


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
        (item["cluster"], item["group"], item["node_id"], _WHY.get(item["cause"], item["cause"]))
        for item in terminations
        if item["node_id"]
    ]
    return table(("CLUSTER", "GROUP", "TERMINATED NODE", "WHY"), sorted(rows))


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
    width = max(len(command) for command, _ in lines) + _GAP
    rows = "\n".join(f"  {_bold(command.ljust(width))}{text}" for command, text in lines)
    return f"Deployed in {seconds:.0f} s. The engine keeps running on {place.url}.\n{rows}"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their content. A narrow terminal wraps the lines, so that an ARN can still be copied."""
    if not rows:
        return ""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [titles, *rows]) for column in range(len(titles))]
    lines = [
        "".join(cell.ljust(width + _GAP) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [titles, *rows]
    ]
    return "\n".join([_bold(lines[0]), *lines[1:], ""])


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if environment.is_styled() else text
