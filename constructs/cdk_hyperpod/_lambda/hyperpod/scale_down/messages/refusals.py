"""Refusals: what is wrong in the file, where, and what to do. A path is a setting of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...kernel.images import ReImaged
from ...kernel.refuse import Refuse
from ...kernel.sentences import several, some
from ...kernel.text import one_line
from .failures import CONTINUE

# -- the cluster ------------------------------------------------------------------------------------------------------


def renamed(old: str, new: str) -> Refuse:
    return Refuse(
        code="cluster-renamed",
        path="name",
        why=f'the deployed cluster is "{old}", and the file says "{new}". A renamed cluster is a new cluster',
        fix=f'keep the name "{old}". Deploy "{new}" beside it, with a file of its own',
    )


def not_ours(cluster: str, tag: str, owner: str) -> Refuse:
    return Refuse(
        code="cluster-of-another-stack",
        path="name",
        why=f'a cluster "{cluster}" exists that this stack did not create: it lacks the tag {tag} = {owner}',
        fix="choose another name, or adopt that cluster in a separate deployment before you scale it down",
    )


def replaced(setting: str) -> Refuse:
    return Refuse(
        code="cluster-would-be-replaced",
        path=setting,
        why="differs from the live cluster, so CloudFormation would replace the cluster, and every node would be terminated",
        fix="undo this change, or deploy a new cluster under another name and move your work there",
    )


# -- nodes_to_delete --------------------------------------------------------------------------------------------------


def beyond_count(group: str, named: int, most: int, count: int) -> Refuse:
    """`most`: how many nodes the group has, or its target."""
    listed = f'names {several(named, "node")} of group "{group}"'
    if count < most:
        deletion = f"lowering it from {most} to {count} deletes only {several(most - count, 'node')}"
    else:
        deletion = f"an instance_count of {count} keeps its {several(most, 'node')}"
    fitting = most - named
    return Refuse(
        code="nodes-beyond-count",
        path="scale_down.nodes_to_delete",
        why=f"{listed}, but {deletion}",
        fix=f"set instance_groups[{group}].instance_count to {fitting}",
    )


def named_controller(node: str, group: str) -> Refuse:
    return Refuse(
        code="node-of-controller-group",
        path="scale_down.nodes_to_delete",
        why=f'{node} is in the controller group "{group}", and HyperPod never deletes a controller node',
        fix="remove it from the list",
    )


def not_here(ids: Sequence[str], going: Mapping[str, int]) -> Refuse:
    """`going`: group -> how many of its nodes the lower count would delete."""
    missing = f"{some(ids)} {'is' if len(ids) == 1 else 'are'} not in this cluster"
    others = some((f'{_other_nodes(count)} of group "{group}"' for group, count in going.items()), 3)
    return Refuse(
        code="nodes-not-in-cluster",
        path="scale_down.nodes_to_delete",
        why=f"{missing}, so lowering the count would delete {others}. An id may be mistyped, or its node was replaced, or an "
        "earlier deployment that rolled back has deleted it",
        fix="correct the id, or remove it from the list. To delete other nodes, name those. To let the guard choose, name none",
    )


def _other_nodes(count: int) -> str:
    return "another node" if count == 1 else f"{count} other nodes"


def named_elsewhere(node: str, group: str) -> Refuse:
    return Refuse(
        code="node-of-unguarded-group",
        path="scale_down.nodes_to_delete",
        why=f'{node} is in "{group}", which is not an ordinary instance group of the cluster',
        fix="remove it from the list",
    )


# -- instance_groups_to_delete ----------------------------------------------------------------------------------------


def unknown_group(group: str, nodes: int) -> Refuse:
    return Refuse(
        code="group-missing",
        path="instance_groups",
        why=f'the live group "{group}" with {several(nodes, "node")} is missing. Removing a group from the file does not delete it',
        fix="put it back, or name it in scale_down.instance_groups_to_delete",
    )


def last_group(groups: Iterable[str]) -> Refuse:
    return Refuse(
        code="scale-down-last-group",
        path="scale_down.instance_groups_to_delete",
        why=f"names every group ({some(groups)}), and a cluster keeps at least one",
        fix="keep one group, or destroy the cluster",
    )


def kept_group(group: str) -> Refuse:
    return Refuse(
        code="group-kept-and-deleted",
        path="scale_down.instance_groups_to_delete",
        why=f'names "{group}", which is also in instance_groups',
        fix="remove it from one of the two",
    )


def controller_group(group: str) -> Refuse:
    return Refuse(
        code="controller-group-deleted",
        path="scale_down.instance_groups_to_delete",
        why=f'names "{group}", the controller group, which HyperPod never deletes',
        fix="remove it from the list",
    )


# -- groups and counts ------------------------------------------------------------------------------------------------


def controller_count(group: str, live: int, count: int) -> Refuse:
    return Refuse(
        code="controller-count-lowered",
        path=f"instance_groups[{group}].instance_count",
        why=f"is {count}, the controller group has {several(live, 'node')}, and HyperPod never deletes a controller node",
        fix=f"set it to {live}",
    )


def immutable(group: str, field: str, live: str, wanted: str) -> Refuse:
    return Refuse(
        code="group-setting-immutable",
        path=f"instance_groups[{group}].{field}",
        why=f"is {wanted}, the live group has {live}, and HyperPod cannot change it",
        fix="undo this change, or create a new group, move your work there, and delete this group",
    )


_PATCHING = {"AutoPatchConfig": "auto_patch", "ScheduledUpdateConfig": "scheduled_update"}


def patching_dropped(groups: Sequence[str], setting: str) -> Refuse:
    names = some([f'"{group}"' for group in groups])
    name = _PATCHING[setting]
    return Refuse(
        code="patching-turned-off",
        path="instance_groups",
        why=f"this deployment would turn off {setting} of {names}, which it does not name",
        fix=f"set {name} of the group to what is live, or to none if you mean to turn it off. In an app with its own CfnCluster, set "
        f"{setting} there, or remove it with UpdateCluster first",
    )


def re_imaged(found: ReImaged, option: str) -> Refuse:
    """`option`: what the command needs to know besides the group. Empty: nothing."""
    group, live, wanted = map(one_line, (found.group, found.live, found.wanted))
    return Refuse(
        code="nodes-re-imaged",
        path=f"instance_groups[{group}]",
        why=f"re-images {several(found.nodes, 'node')} of {group} and ends their jobs",
        fix=f"run `cdk-hyperpod patch {group}{option}`, then deploy. They run {live}, and the deployment wants {wanted}",
    )


def re_imaged_to_older(found: ReImaged) -> Refuse:
    """A patch outside the file, such as an automatic one, is ahead of it."""
    group, live, wanted = map(one_line, (found.group, found.live, found.wanted))
    return Refuse(
        code="nodes-re-imaged-to-older",
        path=f"instance_groups[{group}]",
        why=f"gives {several(found.nodes, 'node')} of {group} an older release, and ends their jobs",
        fix=f"set image_release_version of the group to {live}, which they run, then deploy. If you want {wanted}, run "
        f"`cdk-hyperpod patch {group} --release {wanted}` first",
    )


def rollback_re_images(found: ReImaged, option: str) -> Refuse:
    """`option`: the image. The user's file has another one."""
    group, live, wanted = map(one_line, (found.group, found.live, found.wanted))
    return Refuse(
        code="nodes-re-imaged-by-rollback",
        path=f"instance_groups[{group}]",
        why=f"the rollback re-images {several(found.nodes, 'node')} of {group} and ends their jobs",
        fix=f"run `cdk-hyperpod patch {group}{option}`, then continue the rollback ({CONTINUE}). They run {live}, and the earlier "
        f"template wants {wanted}",
    )


def image_unknown(found: ReImaged) -> Refuse:
    """HyperPod does not report the image, so a patch would not change this answer."""
    group, wanted = one_line(found.group), one_line(found.wanted)
    return Refuse(
        code="live-image-unknown",
        path=f"instance_groups[{group}]",
        why=f"may re-image {several(found.nodes, 'node')} of {group} and end their jobs: HyperPod does not report whether they "
        f"run {wanted}",
        fix="keep image_id and image_release_version of the group as they are deployed",
    )


def rollback_image_unknown(found: ReImaged) -> Refuse:
    """The same in a rollback, which can leave the cluster as it is."""
    group, wanted = one_line(found.group), one_line(found.wanted)
    return Refuse(
        code="live-image-unknown-in-rollback",
        path=f"instance_groups[{group}]",
        why=f"the rollback may re-image {several(found.nodes, 'node')} of {group} and end their jobs: HyperPod does not report whether "
        f"they run {wanted}",
        fix=f"continue the rollback without this resource and the cluster ({CONTINUE} --resources-to-skip, with both logical ids)",
    )


def patching_needs_newer_cluster(group: str, setting: str, created: str) -> Refuse:
    return Refuse(
        code="cluster-before-2026",
        path=f"instance_groups[{group}].{setting}",
        why=f"requires a cluster under EKS that was created in 2026 or later, and this one was created on {created}",
        fix="remove it. `cdk-hyperpod patch` works without it",
    )


def too_many(nodes: int, limit: int) -> Refuse:
    return Refuse(
        code="nodes-above-limit",
        path="scale_down.max_nodes",
        why=f"is {limit}, and this deployment would delete {several(nodes, 'node')}",
        fix=f"raise it to {nodes} if you want that, or delete them in several deployments",
    )


def autoscaled_count(group: str, held: int, count: int) -> Refuse:
    return Refuse(
        code="autoscaled-count-too-low",
        path=f"instance_groups[{group}].instance_count",
        why=f"is {count}, and the autoscaler of the group holds {held}. This deployment sends the lower count, for which HyperPod "
        "would terminate nodes at random",
        fix=f"set it to {held}, or let the autoscaler release nodes first",
    )


def target_stays(group: str, target: int, nodes: int, count: int) -> Refuse:
    return Refuse(
        code="target-does-not-fall",
        path=f"instance_groups[{group}].instance_count",
        why=f"is {count}, and HyperPod keeps a target of {target} with {several(nodes, 'node')} in the group. Under standard "
        "provisioning, HyperPod would terminate nodes at random for a lower target",
        fix=f"set it to {target}, wait until the group has {several(target, 'node')}, and delete nodes then",
    )


def launched_again(group: str, target: int, count: int) -> Refuse:
    return Refuse(
        code="nodes-launched-again",
        path=f"instance_groups[{group}].instance_count",
        why=f"is {count}, and HyperPod keeps a target of {target}: it launches other nodes for deleted ones, again and again",
        fix=f"set it to {target}, and ask AWS why the target does not fall",
    )


NOT_KNOWN = Refuse(
    code="rollback-reach-unknown",
    path="the rollback",
    why="there are nodes above the counts, and the function cannot read whether the failed update reached the cluster. It needs the "
    "permission cloudformation:DescribeStackEvents on its own stack",
    fix="find what denies that permission, such as a permissions boundary or a service control policy, or bring the groups to the "
    "counts of the earlier template yourself. Then continue the rollback (`aws cloudformation continue-update-rollback`)",
)


# -- draining ---------------------------------------------------------------------------------------------------------


def agent_is_silent(why: str) -> Refuse:
    """No agent drains nodes under Slurm."""
    return Refuse(
        code="drain-agent-silent",
        path="scale_down.drain",
        why=f"the drain agent {why}",
        fix="start it on the controller with `cdk-hyperpod lifecycle run drain | bash`. If slurm.drain is new in the file, first "
        "deploy without deleting anything. Or set on_silent: undrained",
    )


AGENT_SAVES_NOTHING = Refuse(
    code="drain-agent-without-backup",
    path="scale_down.drain",
    why="these nodes must be backed up (slurm.drain.backup, on_failure: fail), but the running drain agent was started before "
    "slurm.drain.backup was set",
    fix="start it again on the controller with `cdk-hyperpod lifecycle run drain | bash`. If the backup is new in the file, first "
    "deploy without deleting anything",
)
DRAINING_IS_NEW = Refuse(
    code="drain-new-with-group-deletion",
    path="scale_down.drain",
    why="is new in a deployment that deletes a group, and its rollback could not release the nodes of the group",
    fix="deploy once with scale_down.drain and the group as it is, then delete the group",
)


def drainer_is_silent(why: str) -> Refuse:
    """No drainer drains nodes under EKS."""
    reason = one_line(why)[:300]
    return Refuse(
        code="drainer-failed",
        path="scale_down.drain",
        why=f"the drainer fails ({reason})",
        fix="look at its log, which the stack hyperpod-NAME-eks has. Or set on_silent: undrained",
    )


DRAINER_SAVES_NOTHING = Refuse(
    code="drainer-without-backup",
    path="scale_down.drain",
    why="these nodes must be backed up (backup_cron_job), but the drainer knows no CronJob",
    fix="deploy hyperpod-NAME-eks, which configures the drainer, before you delete nodes",
)
