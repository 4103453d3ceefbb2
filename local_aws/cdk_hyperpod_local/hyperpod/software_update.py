"""UpdateClusterSoftware: the nodes of a group get another root volume, at once or in batches, and the former one if it fails.

Sources: botocore's shapes UpdateClusterSoftwareRequest and ClusterInstanceGroupDetails; AWS documentation "Update your AMI
version in your SageMaker HyperPod cluster". What they leave open is a switch of Behaviour, or the simplest reading:
a node whose scripts fail at every attempt rolls its group back, and a rollback does not ask PodDisruptionBudgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from . import events, images
from .context import Context, refuse_below_minimum
from .errors import conflict, invalid, not_found
from .state import Cluster, Group, HyperPodState, Json, Node, ReImage, SoftwareUpdate

ATTEMPTS = 4
"""How often lifecycle scripts are tried before a rollback (hyperpod-mental-model.md)."""
ALARM_CHECK = 60
"""Seconds between two looks at the alarms."""


# --- the request ---


def update_cluster_software(context: Context, request: Json) -> Json:
    """UpdateClusterSoftware. Without a group, it updates all groups."""
    state, cluster = context.state, context.cluster(request["ClusterName"])
    if cluster.status not in ("InService", "Failed"):
        raise conflict(f"Cannot update the software of cluster {cluster.name} while it is in status {cluster.status}")
    asked = request.get("InstanceGroups", [{"InstanceGroupName": name} for name in cluster.groups])
    for each in asked:
        if each["InstanceGroupName"] not in cluster.groups:
            raise not_found(f"Instance group {each['InstanceGroupName']} not found in cluster {cluster.name}")
    names = {each["InstanceGroupName"]: _wanted(context, cluster, request, each) for each in asked}
    _refuse_unsupported(cluster, request, asked)
    _refuse_while_busy(cluster, names)
    refuse_below_minimum(context, cluster, set(names), "update the software")
    for name, image in names.items():
        if cluster.groups[name].status != "Deleting":
            begin(state, cluster, name, image, request.get("DeploymentConfig", {}))
    cluster.patched = True
    return {"ClusterArn": cluster.arn}


def _wanted(context: Context, cluster: Cluster, request: Json, asked: Json) -> str:
    """The image that the request names for a group: by default, the latest one."""
    group = cluster.groups[asked["InstanceGroupName"]]
    if images.release(group.image) is None and "ImageId" not in request:
        raise invalid(
            f"Instance group {group.name} uses a custom AMI. Specify ImageId with a custom AMI, or with default"
        )
    named = {**asked, **({"ImageId": request["ImageId"]} if "ImageId" in request else {})}
    return images.wanted(named, context.state.image)


def _refuse_unsupported(cluster: Cluster, request: Json, asked: Sequence[Json]) -> None:
    if "DeploymentConfig" in request and not cluster.eks:
        raise invalid("DeploymentConfig is only supported for clusters orchestrated by Amazon EKS")
    versions = [each for each in asked if "ImageReleaseVersion" in each]
    if versions and not images.has_versions(cluster):
        raise invalid(
            "ImageReleaseVersion is only supported for clusters orchestrated by Amazon EKS that were created on or after "
            "January 1, 2026"
        )
    if versions and request.get("ImageId", "default") != "default":
        raise invalid("Only one of ImageId and ImageReleaseVersion can be specified for an instance group")


def _refuse_while_busy(cluster: Cluster, names: dict[str, str]) -> None:
    updating = sorted(name for name in names if cluster.groups[name].update)
    if updating:
        raise conflict(f"A software update of instance group {updating[0]} of cluster {cluster.name} is in progress")
    checking = {node.group for node in cluster.nodes.values() if node.status == "DeepHealthCheckInProgress"}
    if checking & set(names):
        raise conflict(
            f"Cannot update the software of cluster {cluster.name} while deep health checks are in progress on instance "
            f"group {min(checking & set(names))}"
        )


# --- its steps ---


def begin(state: HyperPodState, cluster: Cluster, name: str, image: str, deployment: Json) -> None:
    """Schedule the update of one group."""
    group = cluster.groups[name]
    update = SoftwareUpdate(
        image=image,
        former=group.image,
        deployment=deployment,
        due=state.now + state.timings.software_update_pending,
        everything=state.behaviour.same_image_again == "re_images",
    )
    cluster.groups[name] = replace(group, status="SystemUpdating", software="Pending", image=image, update=update)
    if not cluster.continuous or state.behaviour.software_update_shows == "SystemUpdating":
        cluster.status = "SystemUpdating"
    events.add(state, cluster, events.PATCHING_SCHEDULED, group=name)


def step(state: HyperPodState, cluster: Cluster) -> None:
    """Continue each update whose time has come, or whose batch is complete."""
    for name in list(cluster.groups):
        while _moves(state, cluster, cluster.groups[name]):
            pass
    if cluster.status == "SystemUpdating" and not any(group.update for group in cluster.groups.values()):
        cluster.status = "InService"


def _moves(state: HyperPodState, cluster: Cluster, group: Group) -> bool:
    """Do the next step of the group's update; False if it must wait."""
    update = group.update
    if update is None or update.step == "patching":
        return False
    if update.step == "batch":
        if any(cluster.nodes[each].status == "SystemUpdating" for each in update.batch if each in cluster.nodes):
            return False
        _batch_ended(state, cluster, group, update)
        return True
    if update.due is None or update.due > state.now:
        return False
    if update.step == "pending":
        strategy = "rolling" if update.rolling else "all-at-once"
        events.add(state, cluster, events.PATCHING_INITIATED, group=group.name, strategy=strategy)
        _select_batch(state, cluster, replace(group, software="InProgress"), update)
    else:
        _wait(state, cluster, group, update)
    return True


def _select_batch(state: HyperPodState, cluster: Cluster, group: Group, update: SoftwareUpdate) -> None:
    """Begin with the next nodes. Without any, the update is complete."""
    waiting = _candidates(cluster, group, update)
    if not waiting:
        _finish(state, cluster, group, update)
        return
    if update.rolling:
        events.add(state, cluster, events.BATCH_SELECTED, group=group.name)
    chosen = waiting[: _batch_size(cluster, group, update)]
    started = [node for node in chosen if update.rolls_back or _makes_way(state, cluster, update, node)]
    for node in started:
        replace_root(state, cluster, node, update.image)
    names = tuple(node.logical_id for node in chosen)
    update = replace(
        update, step="batch", due=None, chosen=(*update.chosen, *names), batch=tuple(n.logical_id for n in started)
    )
    cluster.groups[group.name] = replace(group, update=update)


def _candidates(cluster: Cluster, group: Group, update: SoftwareUpdate) -> list[Node]:
    """The nodes that still need the image, in the order of their requests."""
    found = [
        node
        for node in cluster.nodes.values()
        if node.group == group.name
        and node.logical_id not in update.chosen
        and (node.status == "Running" or (node.status == "Failure" and update.rolls_back and node.attempts >= ATTEMPTS))
        and (update.everything or not images.same(node.image, update.image))
    ]
    return sorted(found, key=lambda node: node.number)


def _batch_size(cluster: Cluster, group: Group, update: SoftwareUpdate) -> int:
    everything = sum(node.group == group.name and node.launched for node in cluster.nodes.values())
    if update.rolling is None:
        return everything
    size = update.rolling["MaximumBatchSize"]
    if update.rolls_back:
        size = update.rolling.get("RollbackMaximumBatchSize", size)
    if size["Type"] == "INSTANCE_COUNT":
        return int(size["Value"])
    return max(int(everything * size["Value"] // 100), 1)


def _makes_way(state: HyperPodState, cluster: Cluster, update: SoftwareUpdate, node: Node) -> bool:
    """Whether the node's pods may be evicted. All at once, nothing is drained."""
    if update.rolling is None:
        return True
    evicted = state.outside.evict(cluster, node)
    kind = events.EVICTED if evicted else events.SKIPPED
    events.add(state, cluster, kind, group=node.group, instance_id=node.instance_id)
    if not evicted:
        restore(state, cluster, node)
    return evicted


def restore(state: HyperPodState, cluster: Cluster, node: Node) -> None:
    """Uncordon a node."""
    state.outside.restore(cluster, node)
    events.add(state, cluster, events.RESTORED, group=node.group, instance_id=node.instance_id)


def replace_root(state: HyperPodState, cluster: Cluster, node: Node, image: str) -> None:
    """Give the node another root volume. What runs on it ends."""
    state.re_images.append(
        ReImage(
            at=state.now,
            cluster=cluster.name,
            group=node.group,
            node_id=str(node.instance_id),
            before=node.image,
            after=image,
            call=state.call,
        )
    )
    state.outside.replace_root(cluster, node)
    cluster.nodes[node.logical_id] = replace(
        node, status="SystemUpdating", image=image, attempts=0, due=state.now + state.timings.software_update
    )
    events.add(state, cluster, events.ROOT_REPLACED, group=node.group, instance_id=node.instance_id)


def scripts_ended(state: HyperPodState, cluster: Cluster, node: Node, *, failed: bool) -> Node:
    """The node after its lifecycle scripts should have ended. `failed`: a fault makes them fail."""
    succeeded = False if failed else state.outside.scripts_ended(cluster, node)
    if succeeded is None:
        return replace(node, due=state.now + max(state.timings.requested_second, 0.1))
    group = cluster.groups.get(node.group)
    update = group.update if group else None
    if succeeded:
        return _updated(state, cluster, node, update)
    message = "Lifecycle scripts failed with exit code 1"
    events.add(
        state, cluster, events.SCRIPTS_FAILED, status="Failed", group=node.group, instance_id=node.instance_id,
        metadata={"Instance": {"LcsExecutionState": "Failed", "FailureMessage": message}},
    )  # fmt: skip
    node = replace(node, attempts=node.attempts + 1, message=message)
    if node.attempts < ATTEMPTS:
        return replace(node, due=state.now + state.timings.lifecycle_retry)
    return _given_up(state, cluster, node, update)


def _updated(state: HyperPodState, cluster: Cluster, node: Node, update: SoftwareUpdate | None) -> Node:
    rolls_back = update is not None and update.rolls_back
    kind = events.INSTANCE_ROLLED_BACK if rolls_back else events.INSTANCE_PATCHED
    events.add(state, cluster, kind, group=node.group, instance_id=node.instance_id)
    if update is not None and (update.rolling or update.step == "patching"):
        restore(state, cluster, node)
    # The message of a failed attempt stays (hyperpod-mental-model.md).
    return replace(node, status="Running", due=None, attempts=0, updated_at=state.now)


def _given_up(state: HyperPodState, cluster: Cluster, node: Node, update: SoftwareUpdate | None) -> Node:
    failed = replace(node, status="Failure", due=None)
    if update is None or update.step == "patching":
        # Automatic patching rolls nothing back.
        return replace(failed, due=state.now + state.timings.retry_failed)
    kind = events.INSTANCE_NOT_ROLLED_BACK if update.rolls_back else events.INSTANCE_NOT_PATCHED
    events.add(state, cluster, kind, group=node.group, instance_id=node.instance_id)
    return failed


def _batch_ended(state: HyperPodState, cluster: Cluster, group: Group, update: SoftwareUpdate) -> None:
    here = [cluster.nodes[each] for each in update.batch if each in cluster.nodes]
    failed = tuple(node.logical_id for node in here if node.status == "Failure" and node.attempts >= ATTEMPTS)
    update = replace(update, failed=(*update.failed, *failed))
    if failed and not update.rolls_back:
        events.add(state, cluster, events.PATCHING_FAILED, group=group.name)
        _roll_back(state, cluster, group, update)
        return
    if not _is_followed_by_a_wait(cluster, group, update):
        _select_batch(state, cluster, group, update)
        return
    if update.alarms:
        events.add(state, cluster, events.BAKING, group=group.name, **_baking(update))
    ends = state.now + update.wait_seconds * state.timings.requested_second
    cluster.groups[group.name] = replace(group, update=replace(update, step="waiting", due=state.now, ends=ends))


def _is_followed_by_a_wait(cluster: Cluster, group: Group, update: SoftwareUpdate) -> bool:
    """Alarms are watched after each batch. Without alarms, there is only a wait before another batch."""
    if update.rolls_back or not update.batch:
        return False
    return bool(update.alarms) or (update.wait_seconds > 0 and bool(_candidates(cluster, group, update)))


def _baking(update: SoftwareUpdate) -> dict[str, Any]:
    return {
        "alarm-names": ", ".join(update.alarms),
        "duration": update.wait_seconds,
    }


def _wait(state: HyperPodState, cluster: Cluster, group: Group, update: SoftwareUpdate) -> None:
    """Look at the alarms, and go on when the time is over."""
    states = {name: state.outside.alarm_state(cluster, group.name, name) for name in update.alarms}
    rang = [name for name, alarm in states.items() if alarm == "ALARM"]
    if rang:
        words = {**_baking(update), "alarm-names": ", ".join(rang)}
        events.add(state, cluster, events.ALARM_RANG, group=group.name, **words)
        _roll_back(state, cluster, group, update)
    elif None in states.values():
        events.add(state, cluster, events.ALARMS_UNREADABLE, group=group.name)
        events.add(state, cluster, events.PATCHING_FAILED, group=group.name)
        _roll_back(state, cluster, group, update)
    elif state.now < update.ends:
        due = min(state.now + ALARM_CHECK * state.timings.requested_second, update.ends)
        cluster.groups[group.name] = replace(group, update=replace(update, due=due if update.alarms else update.ends))
    else:
        if update.alarms:
            events.add(state, cluster, events.BAKED, group=group.name, **_baking(update))
        _select_batch(state, cluster, group, update)


def _roll_back(state: HyperPodState, cluster: Cluster, group: Group, update: SoftwareUpdate) -> None:
    """The current and the desired image swap (botocore: TargetStateCount)."""
    back = replace(
        update, image=update.former, former=update.image, rolls_back=True, everything=False, chosen=(), batch=(), failed=(),
    )  # fmt: skip
    group = replace(group, software="RollbackInProgress", image=back.image, current_image=back.former)
    _select_batch(state, cluster, group, back)


def _finish(state: HyperPodState, cluster: Cluster, group: Group, update: SoftwareUpdate) -> None:
    software, kind = _outcome(update)
    if kind is not None:
        events.add(state, cluster, kind, group=group.name)
    if update.rolls_back:
        events.add(state, cluster, events.PATCHING_NOT_COMPLETED, group=group.name)
    for name in update.failed:
        node = cluster.nodes.get(name)
        if node is not None and node.status == "Failure":
            cluster.nodes[name] = replace(node, due=state.now + state.timings.retry_failed)
    if update.failed:
        events.add(state, cluster, events.FAILED_INSTANCES_QUEUED, group=group.name)
    cluster.groups[group.name] = replace(
        group, status="InService", software=software, current_image=update.image, image=update.image, update=None
    )


def _outcome(update: SoftwareUpdate) -> tuple[str, events.Kind | None]:
    """SoftwareUpdateStatus at the end, and its event."""
    if not update.rolls_back:
        return "Succeeded", events.PATCHING_COMPLETED
    if update.failed:
        return "Failed", events.PATCHING_ROLLBACK_FAILED
    return "RollbackComplete", None
