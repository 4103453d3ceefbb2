"""What a change of each setting does to what stands: one table, for `plan`, for synthesis and for the reference.

Every setting of the typed model has an entry; tests/unit/config/test_changes.py walks over the fields, changes them, and compares
the entries with what a deployment does to nodes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..typed.annotations import Fields, Items, Names, field_types, shape
from ..typed.words import shown_name
from .cluster import (
    ClusterConfig,
    DataRepository,
    EbsVolume,
    InstanceGroup,
    NetworkConfig,
    OpenZfsConfig,
    ScaleDownConfig,
    ScaleDownDrain,
    StorageConfig,
    SubnetConfig,
    Taint,
    TieredStorageConfig,
)
from .eks import DEFAULT_KUBERNETES_VERSION, AddOn, AddOnsConfig, AutoscalingConfig, EksConfig, ExistingEksCluster
from .governance import TaskClass, TaskGovernance
from .lifecycle import LifecycleConfig, LifecycleSteps
from .slurm import AccountingDatabase, DrainAgentConfig, DrainBackup, Group, SlurmAccount, SlurmConfig, User
from .teams import PriorityClass, Team

Effect = Literal["in place", "new nodes only", "replaces", "refused"]
EFFECTS: Mapping[Effect, str] = {
    "in place": "running nodes stay, except those that a line below names",
    "new nodes only": "running nodes keep what they have; new and replaced ones have it",
    "replaces": "something is made anew, and the old one goes or stays behind",
    "refused": "while the cluster lives; nothing is changed",
}
"""Each effect, and what it means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a change of one setting does. Of settings with settings in them: what adding or taking out all of them does."""

    effect: Effect
    says: str = ""
    """What else is worth knowing, in a few words. Empty: nothing."""
    unless: Callable[[Any, Any], bool] | None = None
    """Of the old and the new value: whether this change is of the harmless kind, so that it happens in place. Absent: none is."""
    taken_out: Change | None = None
    """What happens where it, or an item of a list, is no longer there. Absent: the same."""


class Within:
    """Settings that are there, absent or not, with what their absence means: each one in them has its own effect."""


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
    # Where one side has none, it is another file system: `file_system_id` and `storage` tell of that.
    return old is None or new is None or new > old


def _rises(old: str | None, new: str | None) -> bool:
    return (new or DEFAULT_KUBERNETES_VERSION) >= (old or DEFAULT_KUBERNETES_VERSION)


def _all(kind: type, change: Change) -> dict[str, Change]:
    return {field.name: change for field in dataclasses.fields(kind)}


_NEW_CLUSTER = "make a new cluster under another name, and move over"
_NEW_GROUP = "add a new group, move the work over, and delete this one"
_BESIDE = "another cluster beside the first, which stays"
_CHECKED = "only used for checks"
_USERS = _new_nodes("lifecycle run users brings it to the others")
_ACCOUNTS = _new_nodes("lifecycle run accounting brings it to the controller")
_DRAIN = _new_nodes("lifecycle run drain brings it to the controller")
_DRAINED = _in_place("deployments that take nodes go by it")
_LINK = _replaces("the link; no file goes, here or in S3")

CHANGES: Mapping[type, Mapping[str, Change | Within]] = {
    ClusterConfig: {
        "name": _replaces(_BESIDE),
        "region": _replaces(_BESIDE),
        "instance_groups": Change(
            effect="in place",
            says="a new group's nodes come",
            taken_out=_refused(
                "unless scale_down.instance_groups_to_delete names the group: then its nodes are deleted"
            ),
        ),
        "account": _replaces(_BESIDE),
        "orchestrator": _refused(_NEW_CLUSTER),
        "node_provisioning_mode": _refused(f"HyperPod fixes it at creation: {_NEW_CLUSTER}"),
        "node_recovery": IN_PLACE,
        "network": WITHIN,
        "eks": _refused(_NEW_CLUSTER),
        "teams": _in_place("a team that is dropped goes with its namespace and all that runs in it"),
        "storage": _new_nodes("what becomes of the data of one that is dropped, removal says"),
        "tiered_storage": IN_PLACE,
        "lifecycle": WITHIN,
        "groups": _USERS,
        "users": _USERS,
        "slurm": WITHIN,
        "encrypt_root_volumes": _new_nodes("HyperPod may refuse it of a group that lives: decide it before"),
        "scale_down": WITHIN,
        "removal": IN_PLACE,
        "log_retention_days": IN_PLACE,
        "termination_protection": IN_PLACE,
        "tags": IN_PLACE,
    },
    InstanceGroup: {
        "name": _refused("another name is another group: name the old one in scale_down"),
        "instance_count": _in_place("more: nodes come; fewer: nodes go; scale_down says which ones"),
        "instance_type": _refused(_NEW_GROUP),
        "instance_types": _in_place("a type of which the group has nodes cannot go"),
        "min_instance_count": _in_place("it guards the next transition, and terminates no running node"),
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
    },
    EbsVolume: {
        "volume_size_gib": NEW_NODES,
        "root_volume": NEW_NODES,
        "volume_kms_key_arn": _refused(f"HyperPod changes no key of a group that lives: {_NEW_GROUP}"),
    },
    Taint: {
        "key": IN_PLACE,
        "effect": _in_place("no_execute evicts pods that do not tolerate it"),
        "value": IN_PLACE,
    },
    NetworkConfig: {
        "availability_zones": _refused(
            f"you cannot change the first zone; others come and go: {_NEW_CLUSTER}", _same_first
        ),
        "internet_egress": IN_PLACE,
        "cidr": _refused(_NEW_CLUSTER),
        "interface_endpoints": IN_PLACE,
        "vpc_id": _refused(_NEW_CLUSTER),
        "subnets": _refused(f"you cannot change the first subnet; others come and go: {_NEW_CLUSTER}", _same_first),
        "endpoint_security_group_id": IN_PLACE,
        "s3_prefix_list_id": IN_PLACE,
        "endpoint_policies": IN_PLACE,
        "trusted_accounts": IN_PLACE,
        "organization_id": IN_PLACE,
    },
    SubnetConfig: {
        "subnet_id": _refused(f"you cannot change the first subnet: {_NEW_CLUSTER}"),
        "availability_zone": _in_place(_CHECKED),
        "cidr": _in_place(_CHECKED),
    },
    EksConfig: {
        "dependencies_chart": _in_place("the chart's pods may start again"),
        "dependencies_chart_digest": _in_place("the chart's pods may start again"),
        "kubernetes_version": _refused("EKS goes up by one version at a time, and never down", _rises),
        "existing_cluster": _refused(_NEW_CLUSTER),
        "public_access_cidrs": IN_PLACE,
        "admin_role_arns": IN_PLACE,
        "image_registry": _in_place("the chart's pods start again"),
        "autoscaling": _in_place("without it, counts are the file's again"),
        "add_ons": WITHIN,
        "priority_classes": _in_place("pods that run keep theirs"),
        "task_governance": WITHIN,
    },
    ExistingEksCluster: {
        "name": _refused(_NEW_CLUSTER),
        "security_group_id": IN_PLACE,
        "endpoint": IN_PLACE,
        "certificate_authority": IN_PLACE,
    },
    AutoscalingConfig: {
        "instance_groups": _in_place("Karpenter may terminate nodes of a group that leaves the list"),
        "limits": _in_place("lowering it terminates no node"),
    },
    AddOnsConfig: _all(AddOnsConfig, _in_place("the add-on's pods start again")),
    AddOn: _all(AddOn, _in_place("the add-on's pods start again")),
    PriorityClass: {
        "name": _replaces("the class; pods that run keep what they have"),
        "value": _refused("Kubernetes changes no value: make a class of another name"),
        "preempts": _refused("Kubernetes does not change it: make a class of another name"),
        "description": IN_PLACE,
    },
    TaskGovernance: {
        "priority_classes": _in_place("acts on what is queued from then on"),
        "fair_share": _in_place("acts on what is queued from then on"),
        "idle_resource_sharing": _in_place("acts on what is queued from then on"),
    },
    TaskClass: _all(TaskClass, _in_place("acts on what is queued from then on")),
    Team: {
        "name": _replaces("the team: the old one goes with its namespace and all that runs in it"),
        "quota": _in_place("running pods stay"),
        "borrow_limit": _in_place("preemption may take back what was borrowed"),
        "absolute_borrow_limits": _in_place("preemption may take back what was borrowed"),
        "hard": _in_place("running pods stay"),
        "namespace": _replaces("the namespace: the old one goes with all that runs in it"),
        "pod_security": _in_place("running pods stay"),
        "role_arns": _in_place("access ends at once; no pod stops"),
        "pod_role_arn": _in_place("running pods get it with their next credentials"),
        "priority_classes": _in_place("running pods stay"),
        "patch_workloads": IN_PLACE,
        "fair_share_weight": IN_PLACE,
        "default_vcpus": _in_place("new pods have it"),
        "default_memory_gib": _in_place("new pods have it"),
    },
    StorageConfig: {
        "capacity_gib": _refused("FSx grows a file system and never shrinks it", _does_not_shrink),
        "throughput_mbps_per_tib": _in_place("with efa, FSx fixes it at creation"),
        "efa": _refused("it makes a new, empty file system: take storage out first, in a deployment of its own"),
        "metadata_iops": IN_PLACE,
        "automatic_backup_retention_days": IN_PLACE,
        "data_repositories": _in_place("a link that is dropped takes no file with it"),
        "mount_path": NEW_NODES,
        "file_system_id": _new_nodes("what becomes of the data of one that was made here, removal says"),
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
        "writers": IN_PLACE,
    },
    LifecycleSteps: _all(LifecycleSteps, _new_nodes("lifecycle run brings it to the others")),
    Group: _all(Group, _USERS),
    User: _all(User, _USERS),
    SlurmConfig: {
        "accounting_database": _in_place("Slurm's history stays where it was"),
        "accounts": _ACCOUNTS,
        "metadata_users": _new_nodes("lifecycle run metadata brings it to the others"),
        "drain": _DRAIN,
    },
    AccountingDatabase: _all(AccountingDatabase, _in_place("Slurm's history stays where it was")),
    SlurmAccount: _all(SlurmAccount, _ACCOUNTS),
    DrainAgentConfig: {"backup": _DRAIN, "operators": IN_PLACE},
    DrainBackup: _all(DrainBackup, _DRAIN),
    ScaleDownConfig: {
        "nodes_to_delete": Change(effect="in place", says="exactly these nodes are deleted", taken_out=IN_PLACE),
        "instance_groups_to_delete": Change(
            effect="in place", says="these groups are deleted with all their nodes", taken_out=IN_PLACE
        ),
        "max_nodes": IN_PLACE,
        "drain": _DRAINED,
        "retry": _in_place("what should be gone is deleted"),
    },
    ScaleDownDrain: _all(ScaleDownDrain, _DRAINED),
}
"""By the class that has the setting, in the order of its fields."""


Kind = Literal["changed", "added", "taken out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One setting of a file that is another one than before."""

    path: str
    """Where it is, as findings name it: instance_groups[p5].instance_count."""
    effect: Effect
    says: str
    kind: Kind
    """Whether both have a value, which may be a default, or one of them."""
    old: str
    """The value before, in a few characters. Empty: there was none, or it is too long to keep."""
    new: str
    """The value now, likewise."""

    def __str__(self) -> str:
        match self.kind:
            case "changed" if self.old or self.new:
                said = f" {_shown(self.old)} → {_shown(self.new)}"
            case "added" if self.new not in ("", "true"):
                said = f" {_shown(self.new)}"
            case kind:
                said = f" {kind}"
        return f"{self.path}:{said}" + (f"; {self.says}" if self.says else "")


Record = Mapping[str, Any]
"""A file's settings by path, without those that have their defaults: what a stack's metadata keeps of what was deployed."""

METADATA = "cdk-hyperpod:settings"
"""Where a resource of the cluster's stack has the file's record, in its metadata."""

_SHOWN = 64
"""Characters of a value that a record keeps; of a longer one, such as a key, its digest."""
_EMPTY = "nothing"
_THERE = True
"""Stands for settings with settings in them, where being there means something."""
_KEYS = ("name", "subnet_id", "file_system_path", "key", "root_volume")
"""What names an item of a list: the first of these that it has."""


def record(config: ClusterConfig) -> dict[str, Any]:
    """The settings of a file, for the next deployment to compare with. The same for the same file, however it is written."""
    return dict(_flat(config, ""))


def changed(old: Record, new: Record) -> tuple[Changed, ...]:
    """Every setting that differs, in the order of the typed model. What is below something that came or went is told with it.

    `old` may come from another release: paths that this one does not know are passed over.
    """
    found = []
    told: list[str] = []
    for path in sorted(old.keys() | new.keys(), key=_order):
        place = _place(path)
        if (
            old.get(path) == new.get(path)
            or place is None
            or any(path.startswith((f"{each}.", f"{each}[")) for each in told)
        ):
            continue
        entry, default = place
        before, after = old.get(path, default), new.get(path, default)
        kind: Kind = "changed" if None not in (before, after) else "added" if before is None else "taken out"
        if kind != "changed" or entry.unless is not None:
            told.append(path)
        change = (entry.taken_out if kind == "taken out" else None) or entry
        if change.unless is not None and change.unless(before, after):
            change = IN_PLACE
        found.append(
            Changed(path=path, effect=change.effect, says=change.says, kind=kind, old=_words(before), new=_words(after))
        )
    return tuple(found)


def _flat(value: Any, path: str, *, without: str = "") -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(value):
        if field.name == without:
            continue
        here = f"{path}.{field.name}" if path else field.name
        held, form = getattr(value, field.name), shape(field_types(type(value))[field.name]).form
        match form:
            case Fields():
                if held is not None:
                    if isinstance(CHANGES[type(value)][field.name], Change) and field.default is None:
                        yield here, _THERE
                    yield from _flat(held, here)
            case Items(item) if isinstance(inner := shape(item).form, Fields):
                yield from _items(held, inner.kind, here, CHANGES[type(value)][field.name])
            case _ if not _is_default(field, held):
                yield here, _kept(held, form)


def _items(items: Sequence[Any], kind: type, path: str, entry: Change | Within) -> Iterator[tuple[str, Any]]:
    """Item by item, by what names them; their order only where it means something. An item whose settings all have one effect
    is one value, which is less to keep."""
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
    plain = dict(value) if isinstance(form, Names) else _plain(value)
    # CDK leaves empty values out of a template.
    return (plain if plain not in ([], {}) else _EMPTY) if len(_json(plain)) <= _SHOWN else _digest(plain)


def _plain(value: Any) -> Any:
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
    """The settings on a path, without what names items."""
    return re.sub(r"\[[^]]*\]", "", path).split(".")


def _place(path: str) -> tuple[Change, Any] | None:
    """The table's entry for a path, and the setting's default; None: this release has no such setting, or none with an effect."""
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
    """The order of the typed model; items of one list by their names."""
    kind: type | None = ClusterConfig
    places = []
    for name in _names(path):
        fields = [field.name for field in dataclasses.fields(kind)] if kind else []
        places.append(fields.index(name) if name in fields else len(fields))
        kind = _kind_at(kind, name) if kind else None
    return places, path


def _kind_at(kind: type, name: str) -> type | None:
    """The class of what is in a setting; None: it has no settings in it, or there is no such setting."""
    if name not in field_types(kind):
        return None
    match shape(field_types(kind)[name]).form:
        case Fields(inner):
            return inner
        case Items(item) if isinstance(form := shape(item).form, Fields):
            return form.kind
        case _:
            return None
