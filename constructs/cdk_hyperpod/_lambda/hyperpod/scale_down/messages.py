"""What a user reads of the scale-down: refusals, waits, failures and notes, for CloudFormation's event and for the dry run alike.

A path is a place in the configuration file. Each refusal says what is wrong, with the values, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from ..common.refuse import Refuse
from ..common.sentences import LIMIT, fit, sentence, several, some
from ..common.text import one_line
from .actions import Action, DeleteGroup, DeleteNodes, Lower, Pick, Picked, Wait

SOFTWARE = (
    "This cluster needs one software update before nodes can be taken from it by name. Run `aws sagemaker "
    "update-cluster-software --cluster-name {cluster}` when its jobs can stop (it replaces every node's root volume and "
    "runs the lifecycle scripts again), wait until the cluster is InService, and {then}"
)


# -- refusals ---------------------------------------------------------------------------------------------------------


def refused(cluster: str, refusals: Sequence[Refuse], *, first: bool) -> str:
    """The reason of a refused deployment."""
    done = "nothing in the cluster was changed" if first else "nodes already taken stay taken"
    return fit(f"Scaling down {cluster} was refused, {done}.", [str(each) for each in refusals])


def malformed(resource: str, problems: Sequence[str]) -> str:
    """The reason when the resource's properties make no sense."""
    return fit(f"The properties of {resource} are malformed, nothing in the cluster was changed.", problems)


def renamed(old: str, new: str) -> Refuse:
    return Refuse(
        path="name",
        why=f'the deployed cluster is "{old}" and the file says "{new}", and a renamed cluster is a new one',
        fix=f'keep the name "{old}", and deploy "{new}" beside it with a file of its own',
    )


def not_ours(cluster: str, tag: str, owner: str) -> Refuse:
    return Refuse(
        path="name",
        why=f'a cluster "{cluster}" exists that this stack did not make: it lacks the tag {tag} = {owner}',
        fix="choose another name, or adopt that cluster in a deployment of its own, before scaling it down",
    )


def replaced(what: str) -> Refuse:
    return Refuse(
        path=what,
        why="differs from the live cluster, and CloudFormation would replace the cluster: every node would be terminated",
        fix="undo this change, or deploy a new cluster under another name and move over",
    )


def beyond_count(group: str, named: int, most: int, count: int) -> Refuse:
    """`most`: how many nodes the group has, or works towards."""
    return Refuse(
        path="scale_down.nodes_to_delete",
        why=f'names {several(named, "node")} of group "{group}", but going from {most} to an instance_count of {count} takes '
        f"{several(most - count, 'node') if most > count else 'none'}",
        fix=f"set instance_groups[{group}].instance_count to {most - named}",
    )


def named_controller(node: str, group: str) -> Refuse:
    return Refuse(
        path="scale_down.nodes_to_delete",
        why=f'{node} is in the controller group "{group}", whose nodes HyperPod never deletes',
        fix="take it out of the list",
    )


def not_here(ids: Sequence[str], going: Mapping[str, int]) -> Refuse:
    """`going`: group -> how many of its nodes would go by count."""
    groups = some((f'{several(count, "node")} of group "{group}"' for group, count in going.items()), 3)
    return Refuse(
        path="scale_down.nodes_to_delete",
        why=f"names {some(ids)}, which {'is' if len(ids) == 1 else 'are'} not in this cluster, and {groups} would go by count "
        "instead; an id may be mistyped, or its node was replaced, or was taken by an earlier deployment that rolled back",
        fix=f"take {'it' if len(ids) == 1 else 'them'} out of the list; if other nodes are to go instead, name those, or none",
    )


def named_elsewhere(node: str, group: str) -> Refuse:
    return Refuse(
        path="scale_down.nodes_to_delete",
        why=f'{node} is in "{group}", which is none of the cluster\'s ordinary instance groups',
        fix="take it out of the list",
    )


def controller_count(group: str, live: int, count: int) -> Refuse:
    return Refuse(
        path=f"instance_groups[{group}].instance_count",
        why=f"is {count}, the controller group has {several(live, 'node')}, and HyperPod never deletes a controller",
        fix=f"set it to {live}",
    )


def unknown_group(group: str, nodes: int) -> Refuse:
    return Refuse(
        path="instance_groups",
        why=f'the live group "{group}" with {several(nodes, "node")} is missing; dropping a group is not enough to delete it',
        fix="put it back, or name it in scale_down.instance_groups_to_delete",
    )


def last_group(groups: Iterable[str]) -> Refuse:
    return Refuse(
        path="scale_down.instance_groups_to_delete",
        why=f"names every group ({some(groups)}), and a cluster keeps at least one",
        fix="keep one group, or destroy the cluster",
    )


def kept_group(group: str) -> Refuse:
    return Refuse(
        path="scale_down.instance_groups_to_delete",
        why=f'names "{group}", which is still in instance_groups',
        fix="remove it from one of the two",
    )


def controller_group(group: str) -> Refuse:
    return Refuse(
        path="scale_down.instance_groups_to_delete",
        why=f'names "{group}", the controller group',
        fix="keep it; HyperPod does not delete the controller group",
    )


def immutable(group: str, field: str, live: str, wanted: str) -> Refuse:
    return Refuse(
        path=f"instance_groups[{group}].{field}",
        why=f"is {wanted}, the live group has {live}, and HyperPod cannot change it",
        fix="add a new group, move the work over, and delete this one",
    )


def patching_dropped(groups: Sequence[str], setting: str) -> Refuse:
    names = some([f'"{group}"' for group in groups])
    return Refuse(
        path="instance_groups",
        why=f"{names} {'has' if len(groups) == 1 else 'have'} a live {setting}, and the cluster's update does not carry it, which turns it off",
        fix=(
            f"write it down (DescribeCluster shows it) and remove it with UpdateCluster, by sending each of these groups without {setting}; "
            "then deploy. To keep it, send it again with UpdateCluster after the deployment; in an app with its own CfnCluster, set it in the "
            "cluster's instance groups instead"
        ),
    )


def too_many(nodes: int, limit: int) -> Refuse:
    return Refuse(
        path="scale_down.max_nodes",
        why=f"is {limit}, and this deployment would take {several(nodes, 'node')}",
        fix=f"raise it to {nodes} if that is meant, or take them in several deployments",
    )


def autoscaled_count(group: str, held: int, count: int) -> Refuse:
    return Refuse(
        path=f"instance_groups[{group}].instance_count",
        why=f"is {count}, its autoscaler holds {held}, and this deployment sends the lower count, for which "
        "HyperPod would terminate nodes at random",
        fix=f"set it to {held}, or let the autoscaler give nodes back first",
    )


def target_stays(group: str, target: int, nodes: int, count: int) -> Refuse:
    return Refuse(
        path=f"instance_groups[{group}].instance_count",
        why=f"is {count}, and HyperPod keeps a target of {target} with {several(nodes, 'node')} there; under standard "
        "provisioning, HyperPod would terminate nodes at random for a lower target",
        fix=f"set it to {target}, wait until the group has its {several(target, 'node')}, and take them from there",
    )


def launched_again(group: str, target: int, count: int) -> Refuse:
    return Refuse(
        path=f"instance_groups[{group}].instance_count",
        why=f"is {count}, and HyperPod keeps a target of {target}: it launches other nodes for those that were "
        "taken, again and again",
        fix=f"set it to {target}, and ask AWS why the target does not fall",
    )


# -- waits and notes --------------------------------------------------------------------------------------------------


def cluster_moving(status: str) -> Wait:
    return Wait(why=f"the cluster is {status}", passing=True)


def group_moving(group: str, status: str) -> Wait:
    return Wait(why=f'group "{group}" is {status}', passing=True)


def controller_replaced(group: str, nodes: int) -> Wait:
    return Wait(why=f'the controller group "{group}" has {several(nodes, "node")} while HyperPod replaces one')


def health_check(group: str, nodes: int) -> Wait:
    return Wait(why=f'group "{group}" has {several(nodes, "node")} under a deep health check', passing=True)


def lowered_meanwhile(group: str, named: int, most: int, count: int) -> Wait:
    return Wait(
        why=f'somebody brought group "{group}" to {several(most, "node")} after this deployment began: with a count of {count}, '
        f"{several(named, 'node')} of nodes_to_delete may not go any more"
    )


def below_minimum(group: str, nodes: int, minimum: int) -> Wait:
    return Wait(why=f'group "{group}" has {nodes} of the {minimum} nodes of its minimum')


def shutting_down(group: str, nodes: Sequence[str]) -> Wait:
    return Wait(why=f'group "{group}" has {several(len(nodes), "node")} shutting down ({some(nodes, 3)})')


def ahead_of_target(group: str, nodes: Sequence[str], target: int) -> Wait:
    return Wait(
        why=f'group "{group}" has {several(len(nodes), "node")} in the list ({some(nodes, 8)}) for a target of {target}. Some of '
        "them may be terminating, so no other node is deleted in their place. If all of them keep running, set the target to "
        f"{len(nodes)} with `aws sagemaker update-cluster` before you try again"
    )


def still_counted(group: str, current: int, listed: int) -> Wait:
    return Wait(why=f'group "{group}" still counts {several(current, "node")}, {listed} of them in the list')


def maybe_counted(group: str, current: int, booted: int) -> Wait:
    return Wait(
        why=f'group "{group}" counts {several(current, "node")}, {booted} of them past their boot: '
        "the rest are starting, or shutting down"
    )


def not_accepting(status: str) -> Wait:
    return Wait(why=f"the nodes are gone, and the cluster is still {status}", passing=True)


def operation_in_progress(operation: str, began: datetime, group: str, before: int, after: int) -> Wait:
    return Wait(
        why=f'HyperPod\'s operation {operation} of {began:%Y-%m-%d %H:%M} lowers group "{group}" from {before} to {after} nodes and is in progress'
    )


def overtaken(group: str) -> Wait:
    return Wait(why=f'somebody else has just changed group "{group}"')


OVERTAKEN = Wait(why="somebody else has just changed the cluster")
OVERTAKEN_FIRST = "Nothing was changed: somebody else changed the cluster while S3, or the drainer, did not answer; see to that, and deploy again"


def left_behind(group: str, nodes: int) -> str:
    return f'group "{group}" with {several(nodes, "node")} is not in the file: it stays, because this is a rollback'


def controller_excess(group: str) -> str:
    return f'the controller group "{group}" has more nodes than the file says; HyperPod never deletes a controller'


NOT_REACHED = "the failed update never reached the cluster: there is nothing to undo"


NOT_KNOWN = Refuse(
    path="the rollback",
    why="it is not known whether the failed update reached the cluster, and nodes would go in either case: the function "
    "needs the permission cloudformation:DescribeStackEvents on its own stack",
    fix="find what denies that permission, such as a permissions boundary or a service control policy, or bring the groups to "
    "the counts of the template before yourself; then continue the rollback (`aws cloudformation continue-update-rollback`)",
)


def absent(ids: Sequence[str]) -> str:
    return f"not in this cluster: {some(ids)}"


def not_ready(node: str, why: str) -> Wait:
    return Wait(why=f"{node} is not ready to go: {why}")


def agent_is_stuck(problem: str) -> Wait:
    return Wait(why=f"the drain agent on the controller says: {one_line(problem)[:300]}")


def agent_is_unheard(why: str) -> Wait:
    return Wait(why=f"the agent that drains nodes {why}")


def agent_is_silent(why: str) -> Refuse:
    """Nobody drains under Slurm."""
    return Refuse(
        path="scale_down.drain",
        why=f"the agent that drains nodes {why}",
        fix="start it on the controller with `cdk-hyperpod lifecycle run drain | bash`, and where slurm.drain is new in the "
        "file, deploy without taking anything before that; or write on_silent: undrained",
    )


AGENT_SAVES_NOTHING = Refuse(
    path="scale_down.drain",
    why="what goes must be saved (slurm.drain.backup, on_failure: fail), and the agent that drains nodes runs without "
    "slurm.drain.backup",
    fix="start it anew on the controller with `cdk-hyperpod lifecycle run drain | bash`, and where the backup is new in the "
    "file, deploy without taking anything before that",
)
DRAINING_IS_NEW = Refuse(
    path="scale_down.drain",
    why="is new in a deployment that deletes a group, and its rollback could not give the group's nodes back to work",
    fix="deploy once with scale_down.drain and the group as it is, then delete the group",
)


def drainer_is_stuck(why: str) -> Wait:
    return Wait(why=f"the drainer fails: {one_line(why)[:300]}")


def drainer_is_silent(why: str) -> Refuse:
    """Nobody drains under EKS."""
    return Refuse(
        path="scale_down.drain",
        why=f"the drainer fails ({one_line(why)[:300]})",
        fix="the stack hyperpod-NAME-eks has it and its log; or write on_silent: undrained",
    )


DRAINER_SAVES_NOTHING = Refuse(
    path="scale_down.drain",
    why="what goes must be saved (backup_cron_job), and the drainer knows no CronJob",
    fix="deploy hyperpod-NAME-eks, which tells it, before you take nodes",
)


def not_drained(cluster: str, why: Sequence[str], *, first: bool, eks: bool = False) -> str:
    """The reason of a deployment whose nodes could not be drained."""
    done = "nothing was deleted" if first else "nodes already taken stay taken, no other was deleted"
    head = f"Nodes of {cluster} were not ready to go: {done}{BACK_TO_WORK}."
    return fit(head, [*why, *_drain_hint(" ".join(why), eks)])


def _drain_hint(why: str, eks: bool) -> Sequence[str]:
    if not eks:
        return (DRAIN_HINT,)
    if "cannot be saved" in why and "forbidden: user" in why.lower():
        return (SAVING_HINT,)
    # What has to be changed, the drainer says.
    return () if "no controller owns" in why else (EVICTION_HINT,)


def not_given_back(nodes: Iterable[str]) -> str:
    """What became of nodes under EKS that nobody wants any more; none: nobody could tell which."""
    held = some(sorted(nodes), 8) or "those that it held"
    return (
        f"The drainer did not give back {held}, which stay cordoned: change scale_down.retry and deploy, or `kubectl uncordon "
        f"hyperpod-ID && kubectl annotate node hyperpod-ID {MARK}-`."
    )


def still_held(reason: str, why: str) -> str:
    """The reason of a failure, and why nodes stay held after it."""
    return _with(reason.replace(BACK_TO_WORK, "", 1), why)


def _with(reason: str, more: str) -> str:
    """Both, the first cut if they are too long together."""
    told = f"{reason} "
    return told + more if len(told) + len(more) <= LIMIT else f"{told[: LIMIT - len(more) - 2]}… {more}"


def unsaved(message: str) -> str:
    return f"it was not saved{f' ({message})' if message else ''}"


BACK_TO_WORK = ", and they go back to work"
MARK = "cdk-hyperpod.dev/drain"
"""The drainer's annotation of a node that it holds."""
SAVING_HINT = (
    "In another namespace than hyperpod-backup, the right to make the CronJob's Job comes with the stack hyperpod-NAME-teams, "
    "which is deployed after the nodes': deploy "
    "once with scale_down.drain.backup_cron_job as it is and no lower count, then take nodes"
)


DRAIN_HINT = (
    "Jobs that need longer: `cdk-hyperpod drain NODE --hold 12h --wait` beforehand, then deploy; or raise "
    "scale_down.drain.timeout_minutes, or set on_timeout: force"
)
EVICTION_HINT = (
    "Pods that need longer: wait until they have ended, or `kubectl drain` beforehand; or raise "
    "scale_down.drain.timeout_minutes, or set on_timeout: force"
)
UNREAD = "the drain agent has not read the request yet"
UNTOLD = "the drainer has not said anything of it"
OVER = "the operation that asked for this is over: nothing more is done for it"
NOT_OURS = "the cluster is not this stack's: nothing is done to it"


# -- one line for each action: the log and the dry run ----------------------------------------------------------------


def line(action: Action) -> str:
    """What an action does, in one line."""
    match action:
        case DeleteNodes():
            return f'take {several(len(action.picks), "node")} of group "{action.group}": {picks(action.picks)}'
        case Lower():
            return f'set group "{action.group}" to a target of {action.count} and a minimum of {action.minimum}; no node goes'
        case DeleteGroup():
            return (
                f'delete group "{action.group}" with {several(action.nodes, "node")}, after the cluster\'s own update'
            )
        case Wait():
            return f"wait: {action.why}"
        case Refuse():
            return f"refuse: {action}"


def picks(chosen: Sequence[Pick], shown: int = 200) -> str:
    """Nodes with their reasons."""
    return some((f"{pick.node.name} ({pick.reason})" for pick in chosen), shown)


# -- failures ---------------------------------------------------------------------------------------------------------


def out_of_time(
    cluster: str,
    minutes: int,
    taken: tuple[int, int] | None,
    left: Sequence[str],
    waits: Sequence[str],
    *,
    back: bool,
    stays: str = "",
) -> str:
    """The reason when CloudFormation's time limit is near. `taken`: how many nodes of how many that there were to take at the
    first look; absent: nobody counted them. `left`: nodes that are still to be taken, whenever they came. `back`: in a rollback;
    `stays`: why continuing it alone does not help, and what does."""
    if taken is None or (left and taken == (0, 0)):
        done = "nodes that were taken stay taken"
    elif taken == (0, 0):
        done = "nothing was to be taken"
    else:
        done = f"{taken[0]} of {several(taken[1], 'node')} taken"
    if not back:
        again = "Deploying again goes on from here, and takes only what is left"
    elif stays:
        again = f"{stays}, then run {CONTINUE}"
    else:
        again = f"Continuing the rollback ({CONTINUE}) goes on from here"
    head = f"Scaling down {cluster} did not finish within {minutes} minutes: {done}."
    return fit(head, [again, *([f"Left: {some(left, 8)}"] if left else []), *waits])


CONTINUE = "`aws cloudformation continue-update-rollback`"


def target_stays_in_rollback(group: str, target: int, count: int) -> str:
    """What a person can do about a rollback that deletes what HyperPod launches again."""
    return (
        f'Continuing the rollback alone does not help: HyperPod keeps a target of {target} for group "{group}", and launches nodes '
        f"again. Delete its nodes above {count} yourself (`aws sagemaker batch-delete-cluster-nodes`), set its InstanceCount to "
        f"{count} at once (`aws sagemaker update-cluster`, the group otherwise as describe-cluster shows it; with more than "
        f"{several(count, 'node')} HyperPod chooses which to terminate)"
    )


def with_asked(reason: str, names: Iterable[str]) -> str:
    """The reason of a failure, and which nodes were deleted by then."""
    asked = list(names)
    return _with(reason, f"HyperPod was asked to delete {some(asked)}.") if asked else reason


def failed(cluster: str, said: Sequence[str]) -> str:
    """The reason when AWS rejected a call for good."""
    return fit(f"Scaling down {cluster} failed.", said)


def software_update(cluster: str, then: str) -> str:
    return SOFTWARE.format(cluster=cluster, then=then)


def group_deletion_failed(cluster: str, groups: Iterable[str], reason: str) -> str:
    return fit(f"Deleting {some(groups)} of {cluster} was rejected by HyperPod.", [reason])


FIRST_HINT = (
    "If this deployment is the first with scale-down, its permissions come with it: deploy once without taking anything, "
    "then again"
)
"""For a right to change something, which comes after prepare in a first deployment."""

STATUS_HINT = (
    "Nothing was changed: the function has to know first whether the stack rolls back, and needs the permission "
    "cloudformation:DescribeStacks on its own stack"
)


# -- what a template may read ------------------------------------------------------------------------------------------

NOTHING = "nothing"
ATTRIBUTE_LIMIT = 2_500
"""Characters of an attribute: CloudFormation takes 4,096 bytes of an answer, ids and all."""


MOST_SHOWN = 50
"""Nodes that an attribute tells by name, in each of its lists."""


def nodes_taken(
    when: datetime,
    gone: Sequence[Picked],
    doomed: Mapping[str, Sequence[str]],
    unsure: Sequence[str] | None,
    left_out: Mapping[str, int],
    listed: Sequence[Picked] = (),
) -> str:
    """Which nodes this deployment deleted. `listed`: nodes that it asked for, too, and that HyperPod still lists. `doomed`: groups that it deletes next, with their nodes. `unsure`: nodes that are gone
    too, and that another process may have deleted for it; absent: there was no other. `left_out`: node -> files that are not in
    its backup."""
    return _fitting(lambda most: " ".join(_taken(when, gone, doomed, unsure, left_out, listed, most)) or NOTHING)


def _taken(
    when: datetime,
    gone: Sequence[Picked],
    doomed: Mapping[str, Sequence[str]],
    unsure: Sequence[str] | None,
    left_out: Mapping[str, int],
    listed: Sequence[Picked],
    most: int,
) -> Iterator[str]:
    if gone:
        shown = gone[:most]
        yield f"{when:%Y-%m-%d %H:%M} UTC: {several(len(gone), 'node')}."
        for group in dict.fromkeys(pick.group for pick in shown):
            yield f"{group}: {_list(shown, group, left_out)}."
        if len(gone) > most:
            yield f"And {len(gone) - most} more, in the log."
    if listed:
        yield f"HyperPod was asked to delete, and still lists: {some([pick.name for pick in listed], most)}."
    for group, nodes in doomed.items():
        yield f'Group "{group}" goes next, with {several(len(nodes), "node")} ({some(nodes, most)}).'
    if unsure is not None:
        yield "The log has all: another process of the function may have deleted more."
    if unsure:
        yield f"Gone, and maybe deleted so: {some(unsure, most)}."


def _list(picked: Sequence[Picked], group: str, left_out: Mapping[str, int]) -> str:
    return ", ".join(
        f"{pick.name} ({pick.reason}{not_in_backup(left_out.get(pick.name, 0))})"
        for pick in picked
        if pick.group == group
    )


def not_in_backup(files: int) -> str:
    """What follows the reason of a node whose backup has left files out."""
    return f"; {several(files, 'file')} left out of its backup" if files else ""


def standing(
    groups: Mapping[str, Sequence[str]], deleting: Mapping[str, Sequence[str]], waits: Sequence[str] = ()
) -> str:
    """Groups that should be gone, with the names of their nodes, and what kept them; and those that HyperPod is deleting."""
    if not (groups or deleting or waits):
        return NOTHING
    lists = [f'group "{name}" with {several(len(nodes), "node")} ({some(nodes, 3)})' for name, nodes in groups.items()]
    again = "change scale_down.retry to go on" if groups else ""

    def told(most: int) -> str:
        every = (*lists, *waits, again, *_accepted(deleting, most))
        return ". ".join(sentence(each).rstrip(".") for each in every if each) + "."

    return _fitting(told)


def _accepted(deleting: Mapping[str, Sequence[str]], most: int) -> Iterator[str]:
    for name, nodes in deleting.items():
        yield (
            f'HyperPod accepted the deletion of group "{name}" with {several(len(nodes), "node")} ({some(nodes, most)}), and has '
            "not finished it; should it stay, change scale_down.retry and deploy"
        )


def _fitting(told: Callable[[int], str]) -> str:
    """What is told by as many names in each list as fit: what comes behind a list is not cut off for its names."""
    texts = map(told, range(MOST_SHOWN, 0, -1))
    return next((text for text in texts if len(text) <= ATTRIBUTE_LIMIT), _cut(told(1)))


def _cut(text: str) -> str:
    return text if len(text) <= ATTRIBUTE_LIMIT else f"{text[: ATTRIBUTE_LIMIT - 1]}…"
