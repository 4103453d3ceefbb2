"""One cluster's life on a running engine: change its file, deploy, check the result.

The real CLI deploys (`deploy`). A test with many deployments of only the cluster's stack can use `change`, which gives
the same template to CloudFormation directly, in a third of the time.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from aws_cdk import App

from cdk_hyperpod.loader import load_config
from cdk_hyperpod.names import cluster_stack_name, eks_stack_name, foundation_stack_name, teams_stack_name
from cdk_hyperpod_local import assemblies
from cdk_hyperpod_local.cdk import Cdk, Result
from cdk_hyperpod_local.session import Entry, LocalAws
from helpers.local_aws import templates
from stacks import add_stacks

Json = Any
Edit = Callable[[Json], None]
"""Changes a template in place as a user would not: without a permission, or with a failing resource."""


class Rehearsal:
    """`config`: the cluster file's content. `synth`, `deploy` and `change` keep the last one.

    `context`: that of cdk.json; absent: none.
    """

    def __init__(self, aws: LocalAws, folder: Path, config: Json, context: Json = None) -> None:
        self.aws = aws
        self.cdk = Cdk(place=aws.place, region=aws.region, account=aws.account)
        self.config: Json = deepcopy(config)
        self.name: str = config["name"]
        self.foundation = foundation_stack_name(self.name)
        self.cluster = cluster_stack_name(self.name)
        self.eks, self.teams = eks_stack_name(self.name), teams_stack_name(self.name)
        self._folder = folder
        # The app's folder: files that the config names lie below it.
        (folder / ".git").mkdir(parents=True, exist_ok=True)
        self._context = context
        self._made = 0
        self._known: dict[str, Path] = {}

    # -- deploying -----------------------------------------------------------------------------------------------------

    def synth(self, config: Json | None = None, *, edit: Edit | None = None) -> Path:
        """The cloud assembly, synthesized once for each file.

        `edit` changes the template of the cluster's stack in a copy.
        """
        self.config = deepcopy(config or self.config)
        text = yaml.safe_dump(self.config)
        if text not in self._known:
            folder = self._new_folder()
            folder.mkdir(parents=True)
            (folder / "cluster.yaml").write_text(text, "utf-8")
            app = App(outdir=str(folder / "cdk.out"), analytics_reporting=False, context=self._context)
            add_stacks(app, load_config(folder / "cluster.yaml"))
            self._known[text] = Path(app.synth().directory)
        if edit is None:
            return self._known[text]
        edited = shutil.copytree(self._known[text], self._new_folder() / "cdk.out")
        assemblies.edit_template(edited, self.cluster, edit)
        return edited

    def _new_folder(self) -> Path:
        self._made += 1
        return self._folder / str(self._made)

    def deploy(self, config: Json | None = None, *, edit: Edit | None = None, only: str | None = None) -> Result:
        """`cdk deploy` of all stacks; `only`: of the stack with this name."""
        return self.cdk.deploy(self.synth(config, edit=edit), only=only, seconds=300)

    def change(self, config: Json | None = None, *, edit: Edit | None = None) -> templates.Outcome:
        """Update the cluster's stack without the CLI, after `deploy` has published the functions' code."""
        template = assemblies.template(self.synth(config, edit=edit), self.cluster)
        return templates.deploy_whole(self.aws, self.cluster, template)

    # -- looking -------------------------------------------------------------------------------------------------------

    def status(self, stack: str | None = None) -> str:
        (found,) = self.aws.client("cloudformation").describe_stacks(StackName=stack or self.cluster)["Stacks"]
        return str(found["StackStatus"])

    def groups(self) -> dict[str, tuple[int, int, int]]:
        """Name -> current, minimum, target."""
        cluster = self.aws.client("sagemaker").describe_cluster(ClusterName=self.name)
        return {
            group["InstanceGroupName"]: (group["CurrentCount"], group["MinCount"], group["TargetCount"])
            for group in cluster["InstanceGroups"]
        }

    def nodes(self, group: str | None = None) -> dict[str, str]:
        """Instance id -> status; of one group (absent: of all), oldest first.

        A node that is not launched yet has no id.
        """
        pages = self.aws.client("sagemaker").get_paginator("list_cluster_nodes").paginate(ClusterName=self.name)
        found = [node for page in pages for node in page["ClusterNodeSummaries"] if node.get("InstanceId")]
        found.sort(key=lambda node: (node["LaunchTime"], node["InstanceId"]))
        return {
            node["InstanceId"]: node["InstanceStatus"]["Status"]
            for node in found
            if group in (None, node["InstanceGroupName"])
        }

    def wait_for(self, what: Callable[[], bool], *, seconds: float = 30) -> None:
        """Wait until it is true: HyperPod continues after a deployment, for example with launches and a group's
        deletion."""
        limit = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < limit, f"not so after {seconds:.0f} s; the groups are {self.groups()}"
            time.sleep(0.2)

    def mark(self) -> int:
        """The current time, for `calls` and `ended`."""
        return len(self.aws.journal())

    def calls(self, since: int) -> Counter[str]:
        """Calls since the mark that succeeded and changed something, by operation."""
        return Counter(entry.operation for entry in self._changes(since))

    def callers(self, since: int, operation: str) -> list[str]:
        """Their callers, in order: "cloudformation.amazonaws.com", or the session's ARN of a function's role."""
        return [entry.who for entry in self._changes(since) if entry.operation == operation]

    def ended(self, *, at_random: bool = False) -> list[Json]:
        """Every terminated node, with its cause; `at_random`: those that HyperPod chose."""
        found = self.aws.hyperpod()["random_terminations" if at_random else "terminations"]
        return [item for item in found if item["cluster"] == self.name]

    # -- behind CloudFormation's back ----------------------------------------------------------------------------------

    def resize_by_hand(self, group: str, count: int, minimum: int) -> None:
        """Change a group's counts as with the AWS CLI. Everything else is as CloudFormation sent it last."""
        sagemaker = self.aws.client("sagemaker")
        names = (self.name, sagemaker.describe_cluster(ClusterName=self.name)["ClusterArn"])
        sent = [
            spec
            for entry in self.aws.journal()
            if entry.operation in ("CreateCluster", "UpdateCluster") and entry.request.get("ClusterName") in names
            for spec in entry.request.get("InstanceGroups", [])
            if entry.outcome == "ok" and spec["InstanceGroupName"] == group
        ]
        spec = {**sent[-1], "InstanceCount": count, "MinInstanceCount": minimum}
        sagemaker.update_cluster(ClusterName=self.name, InstanceGroups=[spec])

    def leave_room(self, instance_type: str, nodes: int) -> None:
        """From now on there is capacity for this many more nodes of a type, in all clusters together."""
        sagemaker = self.aws.client("sagemaker")
        taken = 0
        for cluster in sagemaker.list_clusters(MaxResults=100)["ClusterSummaries"]:
            pages = sagemaker.get_paginator("list_cluster_nodes").paginate(ClusterName=cluster["ClusterName"])
            found = (node for page in pages for node in page["ClusterNodeSummaries"])
            taken += sum(node["InstanceType"] == instance_type and bool(node.get("InstanceId")) for node in found)
        self.aws.change_hyperpod(capacity={instance_type: taken + nodes})

    def _changes(self, since: int) -> list[Entry]:
        entries = (entry for entry in self.aws.journal(since=since) if entry.outcome == "ok")
        return [entry for entry in entries if not entry.operation.startswith(("Describe", "List"))]


# -- changed files; none of these touches its argument ----------------------------------------------------------------


def resized(config: Json, group: str, count: int, minimum: int | None = None) -> Json:
    """Another count, and another minimum if one is given."""
    changed = deepcopy(config)
    (found,) = (item for item in changed["instance_groups"] if item["name"] == group)
    found["instance_count"] = count
    if minimum is not None:
        found["min_instance_count"] = minimum
    return changed


def with_group(config: Json, group: Json) -> Json:
    return {**deepcopy(config), "instance_groups": [*deepcopy(config["instance_groups"]), deepcopy(group)]}


def without_group(config: Json, name: str) -> Json:
    left = [group for group in config["instance_groups"] if group["name"] != name]
    return {**deepcopy(config), "instance_groups": deepcopy(left)}


def taking(config: Json, *, nodes: Sequence[str] = (), groups: Sequence[str] = (), **more: Json) -> Json:
    """With these nodes and groups named for deletion; `more`: other keys of `scale_down`."""
    wanted = {"nodes_to_delete": list(nodes), "instance_groups_to_delete": list(groups), **more}
    return {**deepcopy(config), "scale_down": wanted}


def broken(resource: Json, *, after: Sequence[str] = ()) -> Edit:
    """An edit that adds a resource which cannot be created, to fail a deployment before or after the cluster."""

    def edit(template: Json) -> None:
        template["Resources"]["Broken"] = {**json.loads(json.dumps(resource)), "DependsOn": list(after)}

    return edit
