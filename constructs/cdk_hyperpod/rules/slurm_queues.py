"""Rules of `slurm.partitions`, `slurm.qos` and the programs around jobs: refuses at synthesis what Slurm would refuse on the controller.

Sources: scontrol(1), sacctmgr(1), and Slurm's pages on QOS and preemption; for the partition dev hyperpod-facts: HyperPod puts
every node there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..config.cluster import ClusterConfig, InstanceGroup
from ..config.slurm import SlurmAccount, SlurmConfig, SlurmPartition, SlurmQos
from ..errors import Finding
from ..typed.known import is_known
from ..typed.validation import check_repeated
from ..typed.words import item_paths, join, show
from .users import limits_accounts

ALL_NODES = "dev"
"""HyperPod's partition of all nodes."""
NORMAL = "normal"
"""The QOS that Slurm makes."""
_CLOSED = ("down", "drain", "inactive")
_STEPS = {
    "partitions": "slurm_conf",
    "conf": "slurm_conf",
    "prolog": "slurm_conf",
    "epilog": "slurm_conf",
    "qos": "accounting",
}
"""Each setting, and the step that applies it."""


def check_slurm_queues(config: ClusterConfig) -> Iterator[Finding]:
    """Everything that is wrong with partitions, QOS and programs around jobs, as far as no file must be read."""
    slurm = config.slurm
    if config.orchestrator == "eks" or not isinstance(slurm, SlurmConfig):
        return
    if config.lifecycle is None or is_known(config.lifecycle):
        yield from _check_scripts(config, slurm)
    yield from _check_partitions(config, slurm)
    yield from _check_qos(slurm)
    if slurm.hook_seconds != SlurmConfig().hook_seconds and slurm.prolog is None and slurm.epilog is None:
        yield Finding(
            code="hook-seconds-unused",
            path="slurm.hook_seconds",
            problem="has no effect without slurm.prolog and slurm.epilog",
            remedy="remove it, or name a folder of programs",
            level="warning",
        )


def _check_scripts(config: ClusterConfig, slurm: SlurmConfig) -> Iterator[Finding]:
    used = [name for name in _STEPS if getattr(slurm, name) not in (None, (), {})]
    if config.lifecycle_mode == "bootstrap" or config.scripts_folder is not None:
        yield from (without_scripts(f"slurm.{name}") for name in used)
        return
    needs = [(f"slurm.{name}", _STEPS[name]) for name in used]
    if limits_accounts(slurm):
        needs.append(("allow_accounts of slurm.partitions", "accounting"))
    for step in dict.fromkeys(step for _, step in needs):
        if getattr(config.lifecycle_steps, step) is False:
            settings = " and ".join(setting for setting, needed in needs if needed == step)
            yield Finding(
                code="slurm-setting-without-step",
                path=f"lifecycle.steps.{step}",
                problem=f"is false, but {settings} need the step",
                remedy="remove one of them",
            )


def without_scripts(path: str) -> Finding:
    """A setting that the library's scripts apply, where they do not run."""
    return Finding(
        code="slurm-setting-without-scripts",
        path=path,
        problem="needs the library's own scripts, which do not run on this cluster",
        remedy="remove it, or use the library's scripts (docs/lifecycle.md)",
    )


# -- partitions


def _partitions(slurm: SlurmConfig) -> dict[str, SlurmPartition]:
    if not isinstance(slurm.partitions, Mapping):
        return {}
    return {name: each for name, each in slurm.partitions.items() if isinstance(each, SlurmPartition)}


def _check_partitions(config: ClusterConfig, slurm: SlurmConfig) -> Iterator[Finding]:
    partitions = _partitions(slurm)
    known = _partitions_of(config.instance_groups)
    accounts = _names(slurm.accounts)
    for name, partition in partitions.items():
        path = join("slurm.partitions", name)
        if known is not None and name not in known:
            yield _unknown_partition(path, name, known)
        yield from _check_allowed(partition.allow_accounts, accounts, f"{path}.allow_accounts")
    yield from _check_default(partitions)
    yield from _check_all_nodes(partitions)


def _partitions_of(groups: object) -> Sequence[str] | None:
    """The partitions that the cluster has. None: they are unknown."""
    if not isinstance(groups, tuple):
        return None
    found = [group.partition for group in groups if isinstance(group, InstanceGroup) and group.partition is not None]
    return [*dict.fromkeys(found), ALL_NODES] if is_known(found) and is_known(groups) else None


def _unknown_partition(path: str, name: str, known: Sequence[str]) -> Finding:
    some = ", ".join(known[:10])
    return Finding(
        code="partition-unknown",
        path=path,
        problem=f"no group of the file has the partition {show(name)}",
        remedy=f"use one of {some}, or set `partition` of a group",
    )


def _check_allowed(allowed: object, accounts: Sequence[str] | None, path: str) -> Iterator[Finding]:
    if not isinstance(allowed, tuple) or accounts is None:
        return
    yield from check_repeated(allowed, path)
    for name in dict.fromkeys(allowed):
        if name == "root":
            yield Finding(
                code="partition-account-root",
                path=path,
                problem="root is the account above all others, so Slurm lets all of them in",
                remedy="remove it. To close a partition, set its state to inactive",
            )
        elif is_known(name) and name not in accounts:
            yield Finding(
                code="partition-account-unknown",
                path=path,
                problem=f"slurm.accounts has no account {show(name)}",
                remedy="add it there, or create it in Slurm yourself",
                level="warning",
            )


def _check_default(partitions: Mapping[str, SlurmPartition]) -> Iterator[Finding]:
    first, *others = [name for name, each in partitions.items() if each.default is True] or [""]
    for name in others:
        yield Finding(
            code="partition-default-duplicated",
            path=f"{join('slurm.partitions', name)}.default",
            problem=f"{first} is the default already, and Slurm has one",
            remedy="keep one of them",
        )
    default = first or ALL_NODES
    if default in partitions and partitions[default].state in _CLOSED:
        yield Finding(
            code="partition-default-closed",
            path=f"{join('slurm.partitions', default)}.state",
            problem=f"closes {default}, the partition of jobs that name none",
            remedy="set `default: true` on a partition that is up",
            level="warning",
        )


def _check_all_nodes(partitions: Mapping[str, SlurmPartition]) -> Iterator[Finding]:
    """Limits of a partition hold only in it, and each node is in dev, too."""
    limited = [name for name, each in partitions.items() if _is_limited(each)]
    if limited and ALL_NODES not in partitions:
        yield Finding(
            code="partition-dev-open",
            path=join("slurm.partitions", limited[0]),
            problem=f"jobs reach the same nodes without these limits in the partition {ALL_NODES}, where HyperPod has all nodes",
            remedy=f"limit {ALL_NODES}, too, or close it with `{ALL_NODES}: {{state: inactive}}`",
            level="warning",
        )


def _is_limited(partition: SlurmPartition) -> bool:
    return bool(partition.max_time_minutes or partition.allow_accounts or partition.state in _CLOSED)


# -- QOS


def _check_qos(slurm: SlurmConfig) -> Iterator[Finding]:
    items = slurm.qos if isinstance(slurm.qos, tuple) else ()
    paths = item_paths("slurm.qos", items)
    qos = [(path, each) for path, each in zip(paths, items, strict=True) if isinstance(each, SlurmQos)]
    names = [each.name for _, each in qos if is_known(each.name)]
    yield from _check_qos_names(qos)
    for path, each in qos:
        yield from _check_named(each.preempts, names, f"{path}.preempts")
    yield from _check_loops(qos)
    yield from _check_preempt_modes(qos)
    yield from _check_qos_of_accounts(slurm, qos, names)


def _check_qos_names(qos: Sequence[tuple[str, SlurmQos]]) -> Iterator[Finding]:
    seen: set[str] = set()
    for path, each in qos:
        if each.name == NORMAL:
            yield Finding(
                code="qos-of-slurm",
                path=f"{path}.name",
                problem=f"{NORMAL} is Slurm's own QOS, which all accounts have",
                remedy="use another name",
            )
        if is_known(each.name) and each.name in seen:
            yield Finding(
                code="qos-duplicated",
                path=f"{path}.name",
                problem=f"the QOS {show(each.name)} is duplicated",
                remedy="use another name",
            )
        seen.add(each.name)


def _check_named(wanted: object, names: Sequence[str], path: str) -> Iterator[Finding]:
    """Names of QOS that the file does not have."""
    yield from check_repeated(wanted, path)
    for name in dict.fromkeys(wanted) if isinstance(wanted, tuple) else ():
        if is_known(name) and name not in (*names, NORMAL):
            some = ", ".join(dict.fromkeys([*names[:10], NORMAL]))
            yield Finding(
                code="qos-unknown",
                path=path,
                problem=f"slurm.qos has no QOS {show(name)}",
                remedy=f"use one of {some}, or add it to slurm.qos",
            )


def _check_loops(qos: Sequence[tuple[str, SlurmQos]]) -> Iterator[Finding]:
    """slurmdbd refuses a QOS that preempts itself, through others or not."""
    preempts = {each.name: each.preempts for _, each in qos if is_known(each.name) and isinstance(each.preempts, tuple)}
    for path, each in qos:
        if is_known(each.name) and each.name in _reached_from(each.name, preempts):
            yield Finding(
                code="qos-preempts-itself",
                path=f"{path}.preempts",
                problem=f"{each.name} preempts itself, directly or through another QOS, and Slurm refuses that",
                remedy="remove one of the names",
            )


def _reached_from(name: str, preempts: Mapping[str, Sequence[str]]) -> set[str]:
    found: set[str] = set()
    left = [*preempts.get(name, ())]
    while left:
        each = left.pop()
        if is_known(each) and each not in found:
            found.add(each)
            left += preempts.get(each, ())
    return found


def _check_preempt_modes(qos: Sequence[tuple[str, SlurmQos]]) -> Iterator[Finding]:
    preempted = {
        name for _, each in qos if isinstance(each.preempts, tuple) for name in each.preempts if is_known(name)
    }
    for path, each in qos:
        if is_known(each.preempt_mode) and each.preempt_mode is not None and each.name not in preempted:
            yield Finding(
                code="preempt-mode-unused",
                path=f"{path}.preempt_mode",
                problem="says how jobs of this QOS end when another QOS preempts them, and none does",
                remedy="set it on the QOS that is preempted, or remove it",
                level="warning",
            )


def _check_qos_of_accounts(
    slurm: SlurmConfig, qos: Sequence[tuple[str, SlurmQos]], names: Sequence[str]
) -> Iterator[Finding]:
    accounts: Any = slurm.accounts if isinstance(slurm.accounts, tuple) else ()
    used: set[str] = set()
    for path, account in zip(item_paths("slurm.accounts", accounts), accounts, strict=True):
        if not isinstance(account, SlurmAccount) or not isinstance(account.qos, tuple):
            return
        yield from _check_named(account.qos, names, f"{path}.qos")
        used.update(name for name in account.qos if is_known(name))
    for path, each in qos:
        if is_known(each.name) and each.name not in used:
            yield Finding(
                code="qos-unused",
                path=path,
                problem="no account may use this QOS, so no job can",
                remedy="add it to `qos` of an account in slurm.accounts",
                level="warning",
            )


def _names(accounts: object) -> Sequence[str] | None:
    if not isinstance(accounts, tuple) or not all(isinstance(each, SlurmAccount) for each in accounts):
        return None
    names = [each.name for each in accounts]
    return names if is_known(names) else None
