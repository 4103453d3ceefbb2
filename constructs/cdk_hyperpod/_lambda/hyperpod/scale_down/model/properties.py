"""What a deployment wants, from the properties of the two resources.

Properties of `Custom::HyperPodScaleDown` (prepare) and `Custom::HyperPodGroupRemoval` (finalize). CloudFormation hands
every scalar of a custom resource over as a string, so numbers are read from text, and each group travels as one JSON string.

=========================  =========  ========  ==================================================================
property                   resource   required  meaning
=========================  =========  ========  ==================================================================
ClusterName                both       yes       the cluster's literal name; never a reference to it (prepare runs first)
Groups                     both       yes       list of JSON texts, one for each entry of the cluster's InstanceGroups,
                                                exactly as the template sends it (InstanceGroupName, InstanceCount, …)
InstanceGroupsToDelete     both       no        list of names; a name without a group does nothing
NodesToDelete              both       no        list of instance ids; an id that is not in the cluster does nothing
MaxNodes                   both       no        most nodes that one deployment deletes, 0 to 6,758; absent: 16
AutoscaledGroups           both       no        list of names of groups whose count an autoscaler owns
CreateOnly                 prepare    no        JSON text {"VpcConfig": …, "Orchestrator": …} as the template sends
                                                them; absent: a replacement of the cluster is not looked for
Digest                     both       no        any text that changes whenever something else of the cluster's
                                                properties does: CloudFormation calls a custom resource only on a change
PatchingOff                both       no        JSON text {"AutoPatchConfig": [names], "ScheduledUpdateConfig": [names]}: the
                                                groups whose live setting the deployment may turn off; absent: none
Drain                      both       no        JSON text {"Bucket": …, "TimeoutMinutes": 1 to 30, "OnTimeout": "fail" or "force",
                                                "OnSilent": "fail" or "undrained", "MustBeSaved": true or false}: how nodes
                                                are drained before deletion; under EKS "Function", the ARN of the drainer, in the
                                                place of Bucket, and optionally "UnmanagedPods": "fail" or "evict"; absent:
                                                they are not drained
Retry                      both       no        any text of at most 256 characters, never looked at: a new one makes
                                                CloudFormation call both once more, so that they go on
=========================  =========  ========  ==================================================================

Only prepare uses NodesToDelete and MaxNodes. Finalize has them so that CloudFormation calls it if nothing else changes: a group
that is to be deleted may have been created again.

ServiceToken and ServiceTimeout belong to CloudFormation. Anything else is refused. The cluster must carry the tag
`cdk-hyperpod:stack-id` with the value of AWS::StackId (or CloudFormation's own aws:cloudformation:stack-id), which is
compared with the event's StackId.

What the template may read of an answer (Fn::GetAtt); both are in every answer, whatever was requested. CloudFormation accepts
4 kB of it at most:

==============  =========  =============================================================================================
attribute       resource   meaning
==============  =========  =============================================================================================
NodesTaken      prepare    text: nodes that it deleted, and why, the first of them by id, and those that are deleted next with
                           their group; "nothing" if there are none
StillStanding   finalize   text: groups that should be deleted and still exist, with their nodes; "nothing" if there are
                           none
==============  =========  =============================================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...kernel.cluster_reading import CONTROLLER
from ...kernel.drain_protocol import MAX_NODES, NODE_ID
from ...kernel.images import IMAGE_SETTINGS
from .cluster import PATCHING_SETTINGS, Desired, DesiredGroup, DrainSettings, Fixed, Network

PREPARE = "Custom::HyperPodScaleDown"
FINALIZE = "Custom::HyperPodGroupRemoval"

_OURS = frozenset(
    {
        "ClusterName",
        "Groups",
        "NodesToDelete",
        "InstanceGroupsToDelete",
        "MaxNodes",
        "AutoscaledGroups",
        "Digest",
        "Drain",
        "PatchingOff",
        "Retry",
    }
)
_ONLY_PREPARE = frozenset({"CreateOnly"})
_CLOUDFORMATION = frozenset({"ServiceToken", "ServiceTimeout"})

MAX_RETRY = 256
MAX_DRAIN_MINUTES = 30
"""A termination takes 15 to 20 minutes, and CloudFormation waits an hour."""

_LONGEST_ARN = 170

_NODE_TYPES = (CONTROLLER, "Login", "Compute")
_NAME = r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
_BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_FUNCTION = r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:[0-9]{12}:function:[a-zA-Z0-9-_]{1,64}"


class MalformedError(Exception):
    """Invalid properties, with all problems."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class _Reader:
    """Reads the values of one set of properties, and gathers what is wrong with them."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.properties = properties
        self.problems: list[str] = []

    def wrong(self, path: str, wanted: str, value: object) -> None:
        text = json.dumps(value, default=str)
        self.problems.append(f"{path}: must be {wanted}, got {text if len(text) <= 80 else f'{text[:79]}…'}")

    def text(self, path: str, value: object, pattern: str, wanted: str, *, most: int = 63) -> str:
        # A name of 63 characters is all that the pattern's count allows without hyphens; with them it allows more.
        if isinstance(value, str) and len(value) <= most and re.fullmatch(pattern, value):
            return value
        self.wrong(path, wanted, value)
        return ""

    def texts(self, path: str, pattern: str, wanted: str) -> tuple[str, ...]:
        """A list of texts without doubles, and without those that are wrong; absent: none."""
        value = self.properties.get(path, [])
        if not isinstance(value, list):
            self.wrong(path, "a list", value)
            return ()
        found = (self.text(f"{path}[{n}]", item, pattern, wanted) for n, item in enumerate(value))
        return tuple(dict.fromkeys(item for item in found if item))

    def number(self, path: str, value: object, most: int = MAX_NODES, *, least: int = 0) -> int:
        """A whole number, or its text."""
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self.wrong(path, f"a whole number from {least} to {most}", value)
        return 0

    def json(self, path: str, value: object) -> dict[str, Any]:
        """A JSON object in a text."""
        try:
            found = json.loads(value) if isinstance(value, str) else None
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        self.wrong(path, "the text of a JSON object", value)
        return {}

    def member(self, path: str, value: object) -> dict[str, Any]:
        """An object inside JSON; absent: empty."""
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.wrong(path, "an object", value)
        return {}

    def member_texts(self, path: str, value: object) -> tuple[str, ...]:
        """A list of texts inside JSON; absent: empty."""
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.wrong(path, "a list of texts", value)
        return ()


_A_NAME = "1 to 63 letters, digits and hyphens"


def read_properties(properties: object, *, kind: str, owner: str | None = None) -> Desired:
    """What a deployment wants, from the resource's properties. Raises MalformedError with every problem at once."""
    if not isinstance(properties, Mapping):
        raise MalformedError(["ResourceProperties: must be an object"])
    reader = _Reader(properties)
    known = _OURS | _CLOUDFORMATION | (_ONLY_PREPARE if kind == PREPARE else frozenset())
    for unknown in sorted(set(properties) - known):
        reader.problems.append(f"{unknown}: is not a property of {kind}; remove it")
    name = reader.text("ClusterName", properties.get("ClusterName"), _NAME, _A_NAME)
    autoscaled = reader.texts("AutoscaledGroups", _NAME, _A_NAME)
    groups = _groups(reader, autoscaled)
    for stray in sorted(set(autoscaled) - {group.name for group in groups}):
        reader.problems.append(f"AutoscaledGroups: names {stray}, which is not in Groups")
    retry = properties.get("Retry", "")
    if not (isinstance(retry, str) and len(retry) <= MAX_RETRY):
        reader.wrong("Retry", f"a text of at most {MAX_RETRY} characters", retry)
    create_only = properties.get("CreateOnly", "")
    fixed = reader.json("CreateOnly", create_only) if create_only else {}
    for unknown in sorted(set(fixed) - {"VpcConfig", "Orchestrator"}):
        reader.problems.append(f"CreateOnly.{unknown}: is neither VpcConfig nor Orchestrator; remove it")
    orchestrator = reader.member("CreateOnly.Orchestrator", fixed.get("Orchestrator"))
    eks = reader.member("CreateOnly.Orchestrator.Eks", orchestrator.get("Eks")).get("ClusterArn")
    if not isinstance(eks, str | None):
        reader.wrong("CreateOnly.Orchestrator.Eks.ClusterArn", "the EKS cluster's ARN", eks)
    desired = Desired(
        cluster=name,
        groups=groups,
        nodes_to_delete=reader.texts("NodesToDelete", NODE_ID, "an instance id such as i-0123456789abcdef0"),
        groups_to_delete=reader.texts("InstanceGroupsToDelete", _NAME, _A_NAME),
        max_nodes=reader.number("MaxNodes", properties.get("MaxNodes", 16)),
        network=_network(reader, "CreateOnly.VpcConfig", fixed.get("VpcConfig")),
        eks_cluster=eks,
        create_only=_create_only(fixed.get("VpcConfig"), orchestrator.get("Eks")) if create_only else "",
        digest=json.dumps([properties.get("Digest"), fixed], sort_keys=True),
        drain=_drain(reader, properties.get("Drain")),
        patching_off=_patching_off(reader, properties.get("PatchingOff")),
        owner=owner,
    )
    if reader.problems:
        raise MalformedError(reader.problems)
    return desired


def _patching_off(reader: _Reader, text: object) -> dict[str, frozenset[str]]:
    found = reader.json("PatchingOff", text) if text else {}
    for unknown in sorted(set(found) - set(PATCHING_SETTINGS)):
        reader.problems.append(f"PatchingOff.{unknown}: is neither {' nor '.join(PATCHING_SETTINGS)}; remove it")
    return {name: frozenset(reader.member_texts(f"PatchingOff.{name}", found.get(name))) for name in PATCHING_SETTINGS}


def _drain(reader: _Reader, text: object) -> DrainSettings | None:
    if not text:
        return None
    before = len(reader.problems)
    found = reader.json("Drain", text)
    if len(reader.problems) > before:
        return None
    for name, allowed in _DRAIN_WORDS.items():
        if found.get(name) not in allowed:
            reader.wrong(f"Drain.{name}", f"one of {', '.join(json.dumps(each) for each in allowed)}", found.get(name))
    minutes = reader.number("Drain.TimeoutMinutes", found.get("TimeoutMinutes"), MAX_DRAIN_MINUTES, least=1)
    function = found.get("Function")
    if function is not None and "Bucket" in found:
        reader.problems.append("Drain: has both Bucket, which is for Slurm, and Function, which is for EKS; keep one")
    return DrainSettings(
        bucket=reader.text("Drain.Bucket", found.get("Bucket"), _BUCKET, "a bucket's name") if function is None else "",
        function=""
        if function is None
        else reader.text("Drain.Function", function, _FUNCTION, "a function's ARN", most=_LONGEST_ARN),
        minutes=minutes,
        force=found.get("OnTimeout") == "force",
        undrained=found.get("OnSilent") == "undrained",
        must_be_saved=found.get("MustBeSaved") is True,
        evict_unmanaged=found.get("UnmanagedPods") == "evict",
    )


_DRAIN_WORDS: Mapping[str, tuple[object, ...]] = {
    "OnTimeout": ("fail", "force"),
    "OnSilent": ("fail", "undrained"),
    "MustBeSaved": (True, False),
    "UnmanagedPods": (None, "fail", "evict"),
}


def _create_only(network: object, eks: object) -> str:
    """The create-only part of CreateOnly; Orchestrator.Slurm may change (CloudFormation registry, AWS::SageMaker::Cluster)."""
    return json.dumps({"VpcConfig": network, "Eks": eks}, sort_keys=True)


def _groups(reader: _Reader, autoscaled: Sequence[str]) -> tuple[DesiredGroup, ...]:
    texts = reader.properties.get("Groups")
    if not isinstance(texts, list) or not texts:
        reader.wrong("Groups", "a list of at least one group's JSON text", texts)
        return ()
    groups = tuple(_group(reader, f"Groups[{n}]", text, autoscaled) for n, text in enumerate(texts))
    names = [group.name for group in groups if group.name]
    for twice in sorted({name for name in names if names.count(name) > 1}):
        reader.problems.append(f"Groups: {twice} is duplicated")
    return groups


def _group(reader: _Reader, path: str, text: object, autoscaled: Sequence[str]) -> DesiredGroup:
    before = len(reader.problems)
    spec = reader.json(path, text)
    if len(reader.problems) > before:
        return DesiredGroup(name="", count=0, fixed=Fixed(instance_types=()))
    name = reader.text(f"{path}.InstanceGroupName", spec.get("InstanceGroupName"), _NAME, _A_NAME)
    count = reader.number(f"{path}.InstanceCount", spec.get("InstanceCount"))
    minimum = reader.number(f"{path}.MinInstanceCount", spec.get("MinInstanceCount", 0))
    if minimum > count and len(reader.problems) == before:
        reader.problems.append(f"{path}.MinInstanceCount: is {minimum}, above InstanceCount {count}")
    role = spec.get("ExecutionRole")
    if not (isinstance(role, str) and role.startswith("arn:")):
        reader.wrong(f"{path}.ExecutionRole", "the ARN of the nodes' role", role)
    requirements = reader.member(f"{path}.InstanceRequirements", spec.get("InstanceRequirements"))
    types = reader.member_texts(f"{path}.InstanceRequirements.InstanceTypes", requirements.get("InstanceTypes"))
    one = spec.get("InstanceType")
    if (one is None) == (not types) or not isinstance(one, str | None) or one == "":
        reader.problems.append(f"{path}: must have either InstanceType or InstanceRequirements")
    node_type = reader.member(f"{path}.SlurmConfig", spec.get("SlurmConfig")).get("NodeType")
    if node_type not in (None, *_NODE_TYPES):
        reader.wrong(f"{path}.SlurmConfig.NodeType", f"one of {', '.join(_NODE_TYPES)}", node_type)
    threads = spec.get("ThreadsPerCore")
    threads = None if threads is None else reader.number(f"{path}.ThreadsPerCore", threads, 2)
    return DesiredGroup(
        name=name,
        count=count,
        minimum=minimum,
        fixed=Fixed(
            instance_types=types or (str(one),),
            flexible=bool(types),
            node_type=node_type,
            execution_role=role,
            network=_network(reader, f"{path}.OverrideVpcConfig", spec.get("OverrideVpcConfig")),
            threads_per_core=threads,
        ),
        autoscaled=name in autoscaled,
        spec=_typed(spec, threads),
    )


def _typed(spec: Mapping[str, Any], threads: int | None) -> dict[str, Any]:
    """The specification as UpdateCluster takes it: without what CloudFormation only reads, counts left to the caller."""
    left_out = ("CurrentCount", "InstanceCount", "MinInstanceCount")
    typed = {key: value for key, value in spec.items() if key not in left_out}
    return typed if threads is None else {**typed, "ThreadsPerCore": threads}


def _network(reader: _Reader, path: str, value: object) -> Network | None:
    found = reader.member(path, value)
    if not found:
        return None
    return Network(
        subnets=frozenset(reader.member_texts(f"{path}.Subnets", found.get("Subnets"))),
        security_groups=frozenset(reader.member_texts(f"{path}.SecurityGroupIds", found.get("SecurityGroupIds"))),
    )


def spec_with(group: DesiredGroup, *, count: int, minimum: int | None) -> dict[str, Any]:
    """A group for UpdateCluster with these counts. The minimum is always sent, because AWS does not document what its absence
    means for a live group. None: standard provisioning, which has no minimum. No image is sent, because whether HyperPod would put it
    on the nodes at once is not documented."""
    counts = {"InstanceCount": count} | ({} if minimum is None else {"MinInstanceCount": minimum})
    spec = {name: value for name, value in group.spec.items() if name not in IMAGE_SETTINGS}
    return {**spec, **counts}
