"""The effect of a change of each setting on an existing cluster: one table, for `plan`, for synthesis and for the
reference.

Every setting of the typed model has an entry. tests/unit/config/test_changes.py changes each field, and compares the
entry with what a deployment does to nodes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..typed.annotations import Either, Fields, Items, JsonObject, Names, arguments_of, field_types, shape
from ..typed.words import shown_name
from .cluster import (
    ClusterConfig,
    DataRepository,
    EbsVolume,
    InstanceGroup,
    NetworkConfig,
    OpenZfsConfig,
    Rolling,
    ScaleDownConfig,
    ScaleDownDrain,
    ScheduledUpdate,
    StorageConfig,
    SubnetConfig,
    Taint,
    TieredStorageConfig,
)
from .eks import (
    DEFAULT_KUBERNETES_VERSION,
    AddOn,
    AddOnsConfig,
    AutoscalingConfig,
    ChartComponents,
    EbsCsiDriverAddOn,
    EksConfig,
    ExistingEksCluster,
    FsxCsiDriverAddOn,
    ObservabilityAddOn,
    S3CsiDriverAddOn,
)
from .governance import TaskClass, TaskGovernance
from .lifecycle import LifecycleConfig, LifecycleSteps
from .monitoring import MonitoringConfig
from .slurm import (
    AccountingDatabase,
    DrainAgentConfig,
    DrainBackup,
    Group,
    SlurmAccount,
    SlurmConfig,
    SlurmFiles,
    SlurmPartition,
    SlurmQos,
    User,
)
from .teams import AcceleratorPartition, PriorityClass, Share, Team

Effect = Literal["in place", "new nodes only", "replaces", "deletes nodes", "refused"]
EFFECTS: Mapping[Effect, str] = {
    "in place": "running nodes stay, except those that a line below names",
    "new nodes only": "running nodes do not change; new and replaced ones get it",
    "replaces": "something is created again, and the old one is deleted or stays",
    "deletes nodes": "running ones lose jobs and local data, unless they are drained",
    "refused": "while the cluster exists; nothing is changed",
}
"""Each effect, and its meaning, the most disruptive last."""

Record = Mapping[str, Any]
"""A file's settings by path, without those that have their defaults. A stack's metadata keeps it for the deployed file."""

Kind = Literal["changed", "added", "removed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting in the deployed file and in this one."""

    path: str
    kind: Kind
    before: Any
    after: Any
    file: Record
    """All settings of this file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The changes of a setting that delete running nodes."""

    when: Callable[[Difference], bool]
    condition: str
    """The same in words."""
    says: str
    """Which nodes are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a change of one setting does. If the setting has settings of its own: what adding or removing all of them does."""

    effect: Effect
    says: str = ""
    """What else to know, in a few words. Empty: nothing."""
    unless: Callable[[Any, Any], bool] | None = None
    """A function of the old and the new value: whether this change happens in place. None: no change does."""
    removed: Change | None = None
    """What happens if the setting, or an item of a list, is removed. None: the same."""
    deletion: Deletion | None = None
    """When it deletes running nodes instead. None: never."""


class Within:
    """Settings that apply their defaults if they are absent. Each setting in them has its own effect."""


IN_PLACE = Change(effect="in place")
NEW_NODES = Change(effect="new nodes only")
WITHIN = Within()


def _in_place(says: str) -> Change:
    return Change(effect="in place", says=says)


def _new_nodes(says: str) -> Change:
    return Change(effect="new nodes only", says=says)


def _replaces(says: str) -> Change:
    return Change(effect="replaces", says=says)


def _refused(says: str, unless: Callable[[Any, Any], bool] | None = None) -> Change:
    return Change(effect="refused", says=says, unless=unless)


def _same_first(old: Sequence[object] | None, new: Sequence[object] | None) -> bool:
    return bool(old) and bool(new) and old[:1] == new[:1]  # type: ignore[index]


def _does_not_shrink(old: int | None, new: int | None) -> bool:
    # If one side has none, it is another file system, which the entries of `file_system_id` and `storage` describe.
    return old is None or new is None or new > old


def _rises(old: str | None, new: str | None) -> bool:
    return (new or DEFAULT_KUBERNETES_VERSION) >= (old or DEFAULT_KUBERNETES_VERSION)


def _names_the_group(difference: Difference) -> bool:
    groups: Sequence[str] = difference.file.get(_GROUPS_TO_DELETE, ())
    return difference.kind == "removed" and difference.path in [f"instance_groups[{name}]" for name in groups]


def _is_lower(difference: Difference) -> bool:
    return difference.kind == "changed" and bool(difference.after < difference.before)


def _has_new_names(difference: Difference) -> bool:
    before, after = difference.before or [], difference.after or []
    # A long list is kept as a digest, so its names are unknown.
    is_known = isinstance(before, list) and isinstance(after, list)
    return bool(set(after) - set(before)) if is_known else bool(after)


def _all(kind: type, change: Change) -> dict[str, Change]:
    return {field.name: change for field in dataclasses.fields(kind)}


_NEW_CLUSTER = "create a new cluster under another name, and move your work there"
_NEW_GROUP = "add a new group, move the work there, and delete this one"
_BESIDE = "creates a second cluster; the first one stays and is billed until you destroy its stacks"
_CHECKED = "used for checks only"
_USERS = _new_nodes("lifecycle run users applies it to the others")
_ACCOUNTS = _new_nodes("lifecycle run accounting applies it to the controller")
_OWN_SCRIPTS = _new_nodes("under Slurm, lifecycle run applies it to the others")
_SLURM_CONF = _new_nodes("lifecycle run slurm_conf applies it to the controller")
_HOOKS = _new_nodes("lifecycle run slurm_conf applies it to the others")
_DRAIN = _new_nodes("lifecycle run drain applies it to the controller")
_STATE = _new_nodes("lifecycle run keep_state applies it to the controller")
_DRAINED = _in_place("applies to deployments that delete nodes")
_IMAGE = _in_place("refused while nodes run another image: run `cdk-hyperpod patch` first")
_NEXT_PATCH = _in_place("applies to the next patch")
_KEPT = Change(effect="in place", says="applies to the next patch", removed=_refused("to turn it off, write none"))
_QUOTA = _in_place("running pods stay")
_LINK = _replaces("the link; no file is deleted, here or in S3")

CHANGES: Mapping[type, Mapping[str, Change | Within]] = {
    ClusterConfig: {
        "name": _replaces(_BESIDE),
        "region": _replaces(_BESIDE),
        "instance_groups": Change(
            effect="in place",
            says="a new group's nodes are added",
            removed=_refused("to delete the group, name it in scale_down.instance_groups_to_delete"),
            deletion=Deletion(
                when=_names_the_group,
                condition="if you remove a group that scale_down.instance_groups_to_delete names",
                says="the group is deleted with all its nodes",
            ),
        ),
        "account": _replaces(_BESIDE),
        "orchestrator": _refused(_NEW_CLUSTER),
        "node_provisioning_mode": _refused(f"it cannot change after creation: {_NEW_CLUSTER}"),
        "node_recovery": IN_PLACE,
        "network": WITHIN,
        "eks": _refused(_NEW_CLUSTER),
        "teams": _in_place("removing a team deletes its namespace and all that runs in it"),
        "storage": _new_nodes("if you remove it, removal decides what happens to its data"),
        "tiered_storage": IN_PLACE,
        "lifecycle": WITHIN,
        "groups": _USERS,
        "users": _USERS,
        "slurm": WITHIN,
        "encrypt_root_volumes": _new_nodes(
            "HyperPod may reject it for an existing group, so decide before you create the group"
        ),
        "scale_down": WITHIN,
        "monitoring": Change(
            effect="in place",
            says="messages and alarms begin",
            removed=_in_place(
                "messages and alarms end; a topic that this file created is deleted with its subscriptions"
            ),
        ),
        "removal": IN_PLACE,
        "log_retention_days": IN_PLACE,
        "termination_protection": IN_PLACE,
        "tags": IN_PLACE,
    },
    InstanceGroup: {
        "name": _refused("another name is another group; to delete the old one, name it in scale_down"),
        "instance_count": Change(
            effect="in place",
            says="nodes are added",
            deletion=Deletion(when=_is_lower, condition="if you lower it", says="scale_down decides which ones"),
        ),
        "instance_type": _refused(_NEW_GROUP),
        "instance_types": _in_place("a type of which the group has nodes cannot be removed"),
        "min_instance_count": _in_place("it applies to the next transition, and terminates no running node"),
        "node_type": _refused(_NEW_GROUP),
        "partition": IN_PLACE,
        "availability_zone": _refused(_NEW_GROUP),
        "threads_per_core": _refused(_NEW_GROUP),
        "ebs_volumes": NEW_NODES,
        "on_start_deep_health_checks": NEW_NODES,
        "training_plan_arn": NEW_NODES,
        "spot": NEW_NODES,
        "labels": IN_PLACE,
        "taints": _in_place("no_execute evicts pods that do not tolerate it"),
        "image_id": _IMAGE,
        "image_release_version": _IMAGE,
        "auto_patch": _KEPT,
        "scheduled_update": _KEPT,
        "rolling": _NEXT_PATCH,
        "scripts_before": _OWN_SCRIPTS,
        "scripts_after": _OWN_SCRIPTS,
    },
    ScheduledUpdate: {"schedule": _NEXT_PATCH},
    Rolling: _all(Rolling, _NEXT_PATCH),
    EbsVolume: {
        "volume_size_gib": NEW_NODES,
        "root_volume": NEW_NODES,
        "volume_kms_key_arn": _refused(f"HyperPod cannot change the key of an existing group: {_NEW_GROUP}"),
    },
    Taint: {
        "key": IN_PLACE,
        "effect": _in_place("no_execute evicts pods that do not tolerate it"),
        "value": IN_PLACE,
    },
    NetworkConfig: {
        "availability_zones": _refused(f"only the first zone cannot change; for another, {_NEW_CLUSTER}", _same_first),
        "internet_egress": IN_PLACE,
        "cidr": _refused(_NEW_CLUSTER),
        "interface_endpoints": IN_PLACE,
        "vpc_id": _refused(_NEW_CLUSTER),
        "subnets": _refused(f"only the first subnet cannot change; for another, {_NEW_CLUSTER}", _same_first),
        "endpoint_security_group_id": IN_PLACE,
        "s3_prefix_list_id": IN_PLACE,
        "endpoint_policies": IN_PLACE,
        "trusted_accounts": IN_PLACE,
        "organization_id": IN_PLACE,
    },
    SubnetConfig: {
        "subnet_id": _refused(f"the first subnet cannot change; for another, {_NEW_CLUSTER}"),
        "availability_zone": _in_place(_CHECKED),
        "cidr": _in_place(_CHECKED),
    },
    EksConfig: {
        "dependencies_chart": _in_place("the chart's pods may restart"),
        "dependencies_chart_digest": _in_place("the chart's pods may restart"),
        "chart_components": WITHIN,
        "kubernetes_version": _refused("EKS can only raise it, one version at a time", _rises),
        "existing_cluster": _refused(_NEW_CLUSTER),
        "public_access_cidrs": IN_PLACE,
        "admin_role_arns": IN_PLACE,
        "image_registry": _in_place("the chart's pods restart"),
        "autoscaling": _in_place("without it, groups get the counts of the file"),
        "add_ons": WITHIN,
        "priority_classes": _in_place("running pods keep theirs"),
        "task_governance": WITHIN,
    },
    ExistingEksCluster: {
        "name": _refused(_NEW_CLUSTER),
        "security_group_id": IN_PLACE,
        "endpoint": IN_PLACE,
        "certificate_authority": IN_PLACE,
    },
    ChartComponents: _all(ChartComponents, _in_place("the objects of a part that is off are deleted")),
    AutoscalingConfig: {
        "instance_groups": _in_place("Karpenter may terminate nodes of a group that you remove from the list"),
        "limits": _in_place("lowering it terminates no node"),
    },
    AddOnsConfig: _all(AddOnsConfig, _in_place("the add-on's pods restart")),
    AddOn: _all(AddOn, _in_place("the add-on's pods restart")),
    ObservabilityAddOn: {
        **_all(AddOn, _in_place("the add-on's pods restart")),
        "workspace_arn": _replaces("the workspace; one that the library created is deleted with its metrics"),
    },
    FsxCsiDriverAddOn: _all(FsxCsiDriverAddOn, _in_place("the add-on's pods restart")),
    S3CsiDriverAddOn: _all(S3CsiDriverAddOn, _in_place("the add-on's pods restart")),
    EbsCsiDriverAddOn: _all(EbsCsiDriverAddOn, _in_place("the add-on's pods restart")),
    PriorityClass: {
        "name": _replaces("the class; running pods keep their priority"),
        "value": _refused("Kubernetes cannot change it: create a class with another name"),
        "preempts": _refused("Kubernetes cannot change it: create a class with another name"),
        "description": IN_PLACE,
    },
    TaskGovernance: {
        "priority_classes": _in_place("applies to jobs that are queued later"),
        "fair_share": _in_place("applies to jobs that are queued later"),
        "idle_resource_sharing": _in_place("applies to jobs that are queued later"),
    },
    TaskClass: _all(TaskClass, _in_place("applies to jobs that are queued later")),
    Team: {
        "name": _replaces("the team; the old one is deleted with its namespace and all that runs in it"),
        "quota": _QUOTA,
        "borrow_limit": _in_place("preemption may take back what was borrowed"),
        "absolute_borrow_limits": _in_place("preemption may take back what was borrowed"),
        "lend": IN_PLACE,
        "preempt_team_tasks": IN_PLACE,
        "work": _in_place("running pods stay"),
        "see_nodes": IN_PLACE,
        "hard": _in_place("running pods stay"),
        "namespace": _replaces("the namespace; the old one is deleted with all that runs in it"),
        "pod_security": _in_place("running pods stay"),
        "role_arns": _in_place("access of a removed role ends at once; no pod stops"),
        "pod_role_arn": _in_place("running pods get it with their next credentials"),
        "priority_classes": _in_place("running pods stay"),
        "patch_workloads": IN_PLACE,
        "fair_share_weight": IN_PLACE,
        "default_vcpus": _in_place("applies to new pods"),
        "default_memory_gib": _in_place("applies to new pods"),
    },
    Share: _all(Share, _QUOTA),
    AcceleratorPartition: _all(AcceleratorPartition, _QUOTA),
    StorageConfig: {
        "capacity_gib": _refused("FSx can only raise it", _does_not_shrink),
        "throughput_mbps_per_tib": _in_place("with efa, it cannot change after creation"),
        "efa": _refused(
            "it would create a new, empty file system: first remove storage from the file in a separate deployment"
        ),
        "metadata_iops": IN_PLACE,
        "automatic_backup_retention_days": IN_PLACE,
        "data_repositories": _in_place("removing a link deletes no file"),
        "mount_path": NEW_NODES,
        "file_system_id": _new_nodes(
            "removal decides what happens to the data of a file system that this file created"
        ),
        "mount_name": NEW_NODES,
        "security_group_id": IN_PLACE,
        "availability_zone": _in_place(_CHECKED),
        "openzfs": NEW_NODES,
    },
    DataRepository: {
        "file_system_path": _LINK,
        "bucket_name": _LINK,
        "prefix": _LINK,
        "auto_import": IN_PLACE,
        "auto_export": IN_PLACE,
    },
    OpenZfsConfig: {
        "file_system_id": NEW_NODES,
        "mount_path": NEW_NODES,
        "security_group_id": IN_PLACE,
    },
    TieredStorageConfig: {"instance_memory_allocation_percentage": IN_PLACE},
    LifecycleConfig: {
        "mode": NEW_NODES,
        "scripts": NEW_NODES,
        "steps": WITHIN,
        "scripts_before": _OWN_SCRIPTS,
        "scripts_after": _OWN_SCRIPTS,
        "script_minutes": NEW_NODES,
        "on_script_failure": NEW_NODES,
        "writers": IN_PLACE,
    },
    LifecycleSteps: _all(LifecycleSteps, _new_nodes("lifecycle run applies it to the others")),
    Group: _all(Group, _USERS),
    User: _all(User, _USERS),
    SlurmConfig: {
        "accounting_database": _in_place("Slurm's history stays in the old database"),
        "accounts": _ACCOUNTS,
        "metadata_users": _new_nodes("lifecycle run metadata applies it to the others"),
        "partitions": _SLURM_CONF,
        "qos": _ACCOUNTS,
        "conf": _SLURM_CONF,
        "prolog": _HOOKS,
        "epilog": _HOOKS,
        "hook_seconds": _HOOKS,
        "keep_state": _STATE,
        "drain": _DRAIN,
    },
    AccountingDatabase: _all(AccountingDatabase, _in_place("Slurm's history stays in the old database")),
    SlurmAccount: _all(SlurmAccount, _ACCOUNTS),
    SlurmQos: _all(SlurmQos, _ACCOUNTS),
    SlurmPartition: _all(SlurmPartition, _SLURM_CONF),
    SlurmFiles: _all(SlurmFiles, _SLURM_CONF),
    DrainAgentConfig: {"backup": _DRAIN, "operators": IN_PLACE},
    DrainBackup: _all(DrainBackup, _DRAIN),
    ScaleDownConfig: {
        "nodes_to_delete": Change(
            effect="in place",
            deletion=Deletion(when=_has_new_names, condition="if you add ids", says="exactly these nodes are deleted"),
        ),
        "instance_groups_to_delete": Change(
            effect="in place",
            deletion=Deletion(
                when=_has_new_names,
                condition="if you add names",
                says="these groups are deleted with all their nodes",
            ),
        ),
        "max_nodes": IN_PLACE,
        "drain": _DRAINED,
        "retry": _in_place("what should have been deleted is deleted"),
    },
    ScaleDownDrain: _all(ScaleDownDrain, _DRAINED),
    MonitoringConfig: {
        "topic_arn": Change(
            effect="in place",
            says="a topic that this file created is deleted with its subscriptions",
            removed=_in_place("a topic is created, and nobody has subscribed to it"),
        ),
        "emails": _in_place("a new address has to confirm"),
        "below_minimum_minutes": IN_PLACE,
        "missing_nodes_hours": IN_PLACE,
        "training_plan_days": IN_PLACE,
        "free_storage_percent": IN_PLACE,
    },
}
"""By the class that has the setting, in the order of its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One setting of a file that differs from the deployed one."""

    path: str
    """Its path, as in findings: instance_groups[p5].instance_count."""
    effect: Effect
    says: str
    kind: Kind
    """changed: both files have a value, which may be a default. Otherwise only one of them has."""
    old: str
    """The value before, in a few characters. Empty: there was none, or it is too long to keep."""
    new: str
    """The value now. Empty: there is none, or it is too long to keep."""

    def __str__(self) -> str:
        match self.kind:
            case "changed" if self.old or self.new:
                words = f" {_shown(self.old)} → {_shown(self.new)}"
            case "added" if self.new not in ("", "true"):
                words = f" {_shown(self.new)}"
            case kind:
                words = f" {kind}"
        return f"{self.path}:{words}" + (f"; {self.says}" if self.says else "")


METADATA = "cdk-hyperpod:settings"
"""The key of the file's record in the metadata of a resource of the cluster's stack."""

_SHOWN = 64
"""Characters of a value that a record keeps. A longer one, such as a key, is kept as a digest."""
_EMPTY = "nothing"
_THERE = True
"""The record's value for settings with settings in them, if their presence has an effect."""
_GROUPS_TO_DELETE = "scale_down.instance_groups_to_delete"
"""The path of the setting that decides what the removal of a group does. A record keeps it whole."""
_KEYS = ("name", "subnet_id", "file_system_path", "key", "root_volume")
"""What identifies an item of a list: the first of these that it has."""


def record(config: ClusterConfig) -> dict[str, Any]:
    """The settings of a file, for the next deployment to compare with. The same for the same settings, however they are
    written."""
    return dict(_flat(config, ""))


def changed(old: Record, new: Record) -> tuple[Changed, ...]:
    """Every setting that differs, in the order of the typed model. Settings in something that was added or removed have
    no entry of their own.

    `old` may come from another release. Paths that this release does not know are ignored.
    """
    found = []
    reported: list[str] = []
    for path in sorted(old.keys() | new.keys(), key=_order):
        place = _place(path)
        if (
            old.get(path) == new.get(path)
            or place is None
            or any(path.startswith((f"{each}.", f"{each}[")) for each in reported)
        ):
            continue
        entry, default = place
        before, after = old.get(path, default), new.get(path, default)
        kind: Kind = "changed" if None not in (before, after) else "added" if before is None else "removed"
        if kind != "changed" or entry.unless is not None:
            reported.append(path)
        change = _change_of(entry, Difference(path=path, kind=kind, before=before, after=after, file=new))
        found.append(
            Changed(path=path, effect=change.effect, says=change.says, kind=kind, old=_words(before), new=_words(after))
        )
    return tuple(found)


def _change_of(entry: Change, difference: Difference) -> Change:
    """What the table says of this difference."""
    if entry.deletion is not None and entry.deletion.when(difference):
        return Change(effect="deletes nodes", says=entry.deletion.says)
    change = (entry.removed if difference.kind == "removed" else None) or entry
    if change.unless is not None and change.unless(difference.before, difference.after):
        return IN_PLACE
    return change


def _flat(value: Any, path: str, *, without: str = "") -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(value):
        if field.name == without:
            continue
        here = f"{path}.{field.name}" if path else field.name
        yield from _field(value, field, here)


def _field(value: Any, field: dataclasses.Field[Any], here: str) -> Iterator[tuple[str, Any]]:
    held, form = getattr(value, field.name), shape(field_types(type(value))[field.name]).form
    match form:
        case Either() if isinstance(held, str):
            yield here, held
        case Fields() | Either():
            if held is not None:
                if isinstance(CHANGES[type(value)][field.name], Change) and field.default is None:
                    yield here, _THERE
                yield from _flat(held, here)
        case Items(item) if isinstance(inner := shape(item).form, Fields):
            yield from _items(held, inner.kind, here, CHANGES[type(value)][field.name])
        case JsonObject() if held:
            yield here, _digest(held)
        case Names(_, item) if isinstance(shape(item).form, Fields):
            yield from ((f"{here}[{name}]", _digest(dataclasses.asdict(each))) for name, each in held.items())
        case _ if not _is_default(field, held):
            yield here, _plain(held) if here == _GROUPS_TO_DELETE and held else _kept(held, form)


def _items(items: Sequence[Any], kind: type, path: str, entry: Change | Within) -> Iterator[tuple[str, Any]]:
    """Item by item, by its identifying setting. Their order is kept only if it has a meaning. An item whose settings
    all have one effect is one value, to keep the record small."""
    key = next(each for each in _KEYS if each in field_types(kind))
    ordered = isinstance(entry, Change) and entry.unless is not None
    if ordered and items:
        yield path, [str(getattr(item, key)) for item in items]
    uniform = len(set(CHANGES[kind].values())) == 1
    seen: set[str] = set()
    for number, item in enumerate(items):
        name = getattr(item, key)
        name = str(name) if not isinstance(name, bool) else "root" if name else "second"
        here = f"{path}[{name if name not in seen else number}]"
        seen.add(name)
        if uniform:
            yield here, _digest(dataclasses.asdict(item))
        else:
            if not ordered:
                yield here, _THERE
            yield from _flat(item, here, without=key)


def _is_default(field: dataclasses.Field[Any], held: Any) -> bool:
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    return bool(held == default)


def _kept(value: Any, form: object) -> Any:
    plain = {key: _plain(held) for key, held in value.items()} if isinstance(form, Names) else _plain(value)
    # CDK leaves empty values out of a template.
    return (plain if plain not in ([], {}) else _EMPTY) if len(_json(plain)) <= _SHOWN else _digest(plain)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(held) for name, held in arguments_of(value).items() if held is not None}
    return list(value) if isinstance(value, tuple) else value


def _digest(value: Any) -> str:
    return f"sha256:{hashlib.sha256(_json(value).encode()).hexdigest()[:12]}"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=dict)


def _shown(value: str) -> str:
    return shown_name(value, 200) if value else "…"


def _words(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return "" if value.startswith("sha256:") else value
        case list() | tuple():
            return f"[{', '.join(map(str, value))}]"
        case _:
            return _json(value)


def _names(path: str) -> list[str]:
    """The settings on a path, without the identifiers of items."""
    return re.sub(r"\[[^]]*\]", "", path).split(".")


def _place(path: str) -> tuple[Change, Any] | None:
    """The table's entry for a path, and the setting's default. None: this release has no such setting, or none with an
    effect."""
    *above, name = _names(path)
    kind: type = ClusterConfig
    for each in above:
        inner = _kind_at(kind, each)
        if inner is None:
            return None
        kind = inner
    entry = CHANGES[kind].get(name)
    if not isinstance(entry, Change):
        return None
    (field,) = [field for field in dataclasses.fields(kind) if field.name == name]
    leaf = not path.endswith("]") and field.default not in (dataclasses.MISSING, None, ())
    return entry, _plain(field.default) if leaf else None


def _order(path: str) -> tuple[object, ...]:
    """The order of the typed model. Items of one list are sorted by their names."""
    kind: type | None = ClusterConfig
    places = []
    for name in _names(path):
        fields = [field.name for field in dataclasses.fields(kind)] if kind else []
        places.append(fields.index(name) if name in fields else len(fields))
        kind = _kind_at(kind, name) if kind else None
    return places, path


def _kind_at(kind: type, name: str) -> type | None:
    """The class of a setting's value. None: it has no settings in it, or there is no such setting."""
    if name not in field_types(kind):
        return None
    match shape(field_types(kind)[name]).form:
        case Fields(inner) | Either(_, inner):
            return inner
        case Items(item) | Names(_, item) if isinstance(form := shape(item).form, Fields):
            return form.kind
        case _:
            return None
