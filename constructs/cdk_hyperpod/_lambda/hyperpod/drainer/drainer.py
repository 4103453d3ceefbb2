"""Drain nodes of an EKS cluster that somebody wants to take, after their pods have left and their data is saved.

For each node that a request names: cordon it, evict its pods, which disruption budgets may delay, wait until none is left,
save it by a Job of the user's CronJob, say `ready`. What nobody wants any more goes back to work. It keeps nothing: the mark on
a held node and the backups' Jobs are all that it knows, so a look may end anywhere, and the next one comes to the same end.
It never undoes a cordon of another's: a person's, HyperPod's or Karpenter's. What it holds it holds until a lease is over,
which the mark tells; but only a look ends it.

`judge` and `give_back` decide, from what one look has read; `Drainer` reads, acts and answers.
Of a node, the rules of `_RULES` decide, in their order: the first that applies.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..common.drain_protocol import NodeRequest, NodeStatus, Request, RequestError, Status, StatusJob, make_status
from ..common.text import one_line
from .api_client import Api, Json, KubernetesError
from .cluster_snapshot import (
    BATCH,
    JOB_LABEL,
    JOB_REQUEST,
    MARK,
    ClusterSnapshot,
    Hook,
    Job,
    Mark,
    Node,
    Pod,
    make_mark,
    parse_node,
    read_snapshot,
)
from .event import WRITER, parse_event

VERSION = 1
"""Of the drainer, in its answer."""
ACT_S = 15.0
"""A look changes things for so long, however long it has read; the next one goes on."""
RENEW_S = 300.0
"""The mark's lease may be so far from what is asked for before it is written anew: the shortest is ten minutes."""
TOLD_OF_A_NODE = 20
TOLD = 2000
"""Pods that an answer names, of one node and in all: it may have 6 MB, and names are up to 253 characters long."""
SAID = 1_200_000
"""Characters of all nodes' messages."""
ASKED = 3
"""Pods of a node that went back of which it is told what kept them."""
MESSAGE = 600
"""Characters of a node's message."""
MERGE = "application/merge-patch+json"
KEPT_S = 24 * 3600
"""How long a backup's Job can be read after its end, where its CronJob does not say it."""
LEAST_KEPT_S = 3600
"""The same where its CronJob says less: one that is gone before a look has seen its end would be made again."""
LATER = "the rest waits for the next look"


@dataclass(frozen=True, slots=True)
class Act:
    """One change."""

    instance: str
    why: str
    method: str
    path: str
    body: Json
    node: Node | None = None
    """What is changed is this node, as it was read."""
    first: bool = False
    """Where it fails, nothing else is done for the instance."""
    needless: frozenset[int] = frozenset()
    """Statuses by which the server says that it has been done, or has nothing to be done to."""
    begins: bool = False
    """It cordons a node or evicts a pod: nothing of the kind is done for a request that is going to fail."""
    then: Callable[[Json], Act] | None = None
    """What follows from the server's answer."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be said of a node, and to be done about it. The words are the Slurm agent's."""

    state: str
    message: str = ""
    acts: tuple[Act, ...] = ()
    keep: bool = True
    """Whether what is ours on it stays."""
    saved: bool = False
    """Whether it is ready, and what was to be saved is."""
    absent: bool = False
    """Kubernetes has no such node: nothing runs on it."""


# -- decisions --------------------------------------------------------------------------------------------------------


def judge_all(requests: Mapping[str, NodeRequest], snapshot: ClusterSnapshot) -> dict[str, Judgement]:
    """What becomes of all instances that a request names. If one of them is refused, the request fails: no other node is cordoned
    for it, and no pod is evicted."""
    judged = {instance: judge(request, snapshot) for instance, request in requests.items()}
    if not any(one.state == "refused" and not one.keep for one in judged.values()):
        return judged
    return {
        instance: replace(one, acts=tuple(act for act in one.acts if not act.begins))
        for instance, one in judged.items()
    }


def judge(request: NodeRequest, snapshot: ClusterSnapshot) -> Judgement:
    """What becomes of one instance that a request names: the first that holds."""
    nodes = snapshot.nodes.get(request.instance, ())
    if not nodes:
        doubt = _doubt(snapshot)
        return Judgement("unknown", "; ".join(filter(None, ("Kubernetes has no such node", doubt))), absent=not doubt)
    if len(nodes) > 1:
        return Judgement("unknown", f"{len(nodes)} nodes say that they are it: {_some([each.name for each in nodes])}")
    if nodes[0].karpenter:
        said = (
            f"is a node of Karpenter's (NodePool {nodes[0].karpenter}), which decides by itself when a node goes: end what runs "
            "there, or delete the NodePool, and wait until the node has gone; or deploy without scale_down.drain"
        )
        return Judgement("refused", said, keep=False)
    one = _judge_node(request, nodes[0], snapshot)
    return replace(one, acts=(*_renew(request, nodes[0], one), *one.acts))


def _renew(request: NodeRequest, node: Node, one: Judgement) -> tuple[Act, ...]:
    """The lease of what goes on being held, unless the mark is written anyway."""
    mark = node.mark
    if mark is None or not node.cordoned or mark.request.request_id != request.request_id or not one.keep:
        return ()
    if any(act.node or act.then for act in one.acts) or abs(mark.request.expires - request.expires) <= RENEW_S:
        return ()
    return (_write(node, replace(mark, request=request), "go on holding"),)


def _doubt(snapshot: ClusterSnapshot) -> str:
    """Why it may have a node all the same that none of its nodes seems to be."""
    if not snapshot.nodes:
        return "it lists no node at all"
    hidden = [node.name for node in snapshot.nodes.get("", ()) if not node.no_instance]
    return f"it may be one that does not tell its instance: {_some(sorted(hidden))}" if hidden else ""


@dataclass(frozen=True, slots=True)
class View:
    """What one look knows of one node that a request names."""

    request: NodeRequest
    node: Node
    now: float
    mark: Mark | None
    """Of this very request."""
    held: bool
    late: bool
    """The request's deadline is over."""
    lost: bool
    """Late, and its kubelet is silent: it may be one whose way to the API is cut, so it had the time that all have."""
    pods: tuple[Pod, ...]
    """That run there and have to leave."""
    hook: Hook | None
    """Its data has to be saved by this."""
    job: Job | None
    """The drainer's own Job that saves it."""
    stranger: Job | None
    """Another Job of the same name."""
    note: str

    @property
    def left(self) -> tuple[Pod, ...]:
        """Those that are waited for. Past the deadline under `force`, none: what still runs ends with the node."""
        return () if self.lost or (self.late and self.request.force) else self.pods

    @property
    def saved(self) -> bool:
        return (self.mark is not None and self.mark.saved) or (self.job is not None and self.job.state == "complete")


def _view(request: NodeRequest, node: Node, snapshot: ClusterSnapshot) -> View:
    mark = node.mark if node.mark and node.mark.request.request_id == request.request_id else None
    held = mark is not None and node.cordoned
    late = request.deadline <= snapshot.now
    hook = snapshot.hook if request.backup else None
    named = hook.jobs.get(job_name(request, node)) if hook and held else None
    own = named is not None and mark is not None and named.uid == mark.job
    note = "" if not held or (mark and mark.ours) else "was cordoned by somebody else, who has to uncordon it; "
    if node.dead:
        note += "does not respond, as most nodes; " if snapshot.cut_off else "does not respond; "
    return View(
        request=request,
        node=node,
        now=snapshot.now,
        mark=mark,
        held=held,
        late=late,
        lost=late and node.dead and not snapshot.cut_off,
        pods=snapshot.pods.get(node.name, ()),
        hook=hook,
        job=named if own else None,
        stranger=None if own else named,
        note=note,
    )


def _judge_node(request: NodeRequest, node: Node, snapshot: ClusterSnapshot) -> Judgement:
    view = _view(request, node, snapshot)
    return next(one for rule in _RULES if (one := rule(view)) is not None)


def _judge_unmanaged(view: View) -> Judgement | None:
    """Nothing would create such a pod again. What has been held goes on being held until the deployment gives it back."""
    lone = [pod.title for pod in view.pods if not (pod.owner or pod.leaving)]
    if view.request.evict_unmanaged or not lone:
        return None
    said = (
        f"has pods that no controller owns, so nothing would create them again: {_some(lone)}; end them, or set "
        "scale_down.drain.unmanaged_pods: evict"
    )
    return Judgement("refused", said, keep=view.held)


def _say_ready(view: View) -> Judgement | None:
    if not view.held or view.left or (view.hook is not None and not view.saved):
        return None
    acts: tuple[Act, ...] = ()
    if view.saved and view.mark and not view.mark.saved:
        acts = (_write(view.node, replace(view.mark, request=view.request, saved=True), "is saved"),)
    return Judgement("ready", view.note + _ready_message(view.pods, view.saved), acts, saved=view.saved)


def _give_up_lost(view: View) -> Judgement | None:
    if not (view.held and view.lost):
        return None
    said = f"{view.note}cannot be saved: if it is lost, kubectl delete node {view.node.name}; {_named(view.pods)}"
    return Judgement("backup-failed", said.rstrip("; "))


def _time_out(view: View) -> Judgement | None:
    """Nobody is evicted any more: it is only asked what keeps them."""
    if not view.late or view.request.force:
        return None
    asks = tuple(_evict(view.request.instance, pod, dry=True) for pod in view.pods[:ASKED] if not pod.leaving)
    cause = _delay(view) if view.hook else ""
    said = "; ".join(filter(None, ("went back to work at its deadline", _named(view.pods), cause)))
    return Judgement("timed-out", view.note + said, asks, keep=False)


def _judge_unsavable(view: View) -> Judgement | None:
    """Before anything leaves the node: it would leave in vain."""
    if view.hook is None or view.saved or view.job or not view.hook.trouble:
        return None
    return Judgement("backup-failed" if view.hook.lasting else "draining", f"cannot be saved: {view.hook.trouble}")


def _drain(view: View) -> Judgement | None:
    if view.held and not view.left:
        return None
    # What was cordoned before it was ours is another's cordon. One that the mark knows keeps its owner under a new request.
    before = view.node.mark
    ours = (before.ours if before else False) or not view.node.cordoned
    mark = Mark(view.request, ours, False, view.now)
    hold = () if view.held else (replace(_write(view.node, mark, "cordon"), begins=True),)
    evicted = tuple(_evict(view.request.instance, pod) for pod in view.left if not pod.leaving)
    minutes = f"{max(0.0, view.request.deadline - view.now) / 60:.0f} minutes left" if view.left else ""
    said = "; ".join(filter(None, (_named(view.left), minutes)))
    return Judgement("draining", view.note + said, (*hold, *evicted))


def _back_up(view: View) -> Judgement | None:
    if view.hook is None:
        raise AssertionError  # it was ready
    if view.job is not None:
        title = f"Job {view.hook.namespace}/{view.job.name}"
        if view.job.state == "failed":
            return Judgement("backup-failed", f"{view.note}could not be saved: {title}: {view.job.said}")
        return Judgement("backing-up", view.note + _delay(view))
    # One of the drainer's own whose uid it could not write down is like anybody's: only a Job that is in the mark counts.
    said = f"deletes Job {view.hook.namespace}/{view.stranger.name}, which is not in the mark" if view.stranger else ""
    stop = (_stop(view.stranger, view.hook.namespace),) if view.stranger else ()
    save = (_save(view, view.hook, view.hook.cron_job),) if view.hook.cron_job else ()
    return Judgement("backing-up", view.note + said, (*stop, *save))


_RULES: tuple[Callable[[View], Judgement | None], ...] = (
    _judge_unmanaged,
    _say_ready,
    _give_up_lost,
    _time_out,
    _judge_unsavable,
    _drain,
    _back_up,
)


def _delay(view: View) -> str:
    """What keeps the backup, as far as Kubernetes tells: its pod's state, or its Job's last event."""
    hook = view.hook
    if hook is None or view.saved:
        return ""
    if view.job is None:
        # Where the node went back to work at an earlier look, its Job is gone, and its events are not.
        names = [name for name in hook.events if name.startswith(f"drain-{view.request.instance}-")]
        last = names[-1] if names else ""
        return hook.trouble or (f"Job {hook.namespace}/{last}: {hook.events[last]}" if last else "")
    said = hook.pods.get(view.job.name) or "; ".join(filter(None, ("has no pod", hook.events.get(view.job.name, ""))))
    return f"Job {hook.namespace}/{view.job.name}: {said}"


def _ready_message(pods: Sequence[Pod], saved: bool) -> str:
    ended = f"what is left ends with the node; {_named(pods)}" if pods else ""
    return "; ".join(filter(None, ("is saved" if saved else "", ended)))


def give_back(keep: Mapping[str, NodeRequest], snapshot: ClusterSnapshot) -> tuple[Act, ...]:
    """What is ours and nobody wants. `keep`: the instances that somebody does, and what for."""
    acts = [
        _release(node) for nodes in snapshot.nodes.values() for node in nodes if node.mark and node.instance not in keep
    ]
    for job in snapshot.hook.jobs.values() if snapshot.hook else ():
        request = keep.get(job.instance)
        names = [job_name(request, node) for node in snapshot.nodes.get(job.instance, ())] if request else []
        if job.state == "running" and job.name not in names:
            acts.append(_stop(job, snapshot.hook.namespace if snapshot.hook else ""))
    return tuple(acts)


def decide(
    requests: Mapping[str, NodeRequest], judged: Mapping[str, Judgement], snapshot: ClusterSnapshot
) -> list[Act]:
    """All that a request leads to. What goes back goes first, then all nodes are cordoned."""
    keep = {instance: requests[instance] for instance, one in judged.items() if one.keep}
    # Each look begins with another node: pods that nobody may evict take their time, and none is to wait behind them.
    turn = round(snapshot.now) % max(1, len(judged))
    each = [*judged.values()]
    acts = [act for one in (*each[turn:], *each[:turn]) for act in one.acts]
    return [*give_back(keep, snapshot), *sorted(acts, key=lambda act: not act.first)]


def job_name(request: NodeRequest, node: Node) -> str:
    """The name of its backup's Job: only one that was made for this request, and since the node was cordoned for it, proves
    anything. Where somebody had undone the cordon, pods may have come."""
    since = node.mark.since if node.mark else 0.0
    return f"drain-{request.instance}-{hashlib.sha256(f'{request.request_id} {since}'.encode()).hexdigest()[:8]}"


def make_job(request: NodeRequest, node: Node, hook: Hook, cron_job: Json) -> Json:
    """The Job of the CronJob's template, as `kubectl create job --from=cronjob/NAME` makes it, on this node alone."""
    template = copy.deepcopy(cron_job["spec"]["jobTemplate"])
    spec, metadata = template["spec"], template.get("metadata") or {}
    kept = spec.get("ttlSecondsAfterFinished")
    spec["ttlSecondsAfterFinished"] = KEPT_S if kept is None else max(kept, LEAST_KEPT_S)
    pod = spec["template"].setdefault("spec", {})
    for name in ("nodeName", "nodeSelector"):
        pod.pop(name, None)
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    pod["affinity"] = {**(pod.get("affinity") or {}), "nodeAffinity": required}
    # The cordon is a taint, and the node may have others that keep everybody else away.
    pod["tolerations"] = [{"operator": "Exists"}]
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": hook.name, "uid": cron_job["metadata"]["uid"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(request, node),
            "namespace": hook.namespace,
            "labels": {**(metadata.get("labels") or {}), JOB_LABEL: request.instance},
            "annotations": {
                **(metadata.get("annotations") or {}),
                "cronjob.kubernetes.io/instantiate": "manual",
                JOB_REQUEST: request.request_id,
            },
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _save(view: View, hook: Hook, cron_job: Json) -> Act:
    """Its uid goes into the mark: no other Job proves anything."""
    request, node = view.request, view.node

    def keep(made: Json) -> Act:
        if view.mark is None:
            raise AssertionError  # it is held
        uid = str((made.get("metadata") or {}).get("uid") or "")
        return _write(node, replace(view.mark, request=request, job=uid), "write down the Job of")

    path = f"{BATCH}/{hook.namespace}/jobs"
    return Act(
        request.instance, "make its backup's Job", "POST", path, make_job(request, node, hook, cron_job), then=keep
    )


def probe(requests: Mapping[str, NodeRequest], snapshot: ClusterSnapshot) -> tuple[str, Json] | None:
    """A Job of the kind that is going to be made, for the server to say whether it would take it: path and object. None: none is."""
    hook = snapshot.hook
    if hook is None or hook.cron_job is None or hook.trouble:
        return None
    for request in requests.values():
        nodes = snapshot.nodes.get(request.instance, ())
        if request.backup and len(nodes) == 1 and not _has_job(request, nodes[0]):
            job = make_job(request, nodes[0], hook, hook.cron_job)
            del job["metadata"]["name"]
            job["metadata"]["generateName"] = "drain-probe-"
            return f"{BATCH}/{hook.namespace}/jobs?dryRun=All", job
    return None


def _has_job(request: NodeRequest, node: Node) -> bool:
    return (
        node.mark is not None
        and node.mark.request.request_id == request.request_id
        and bool(node.mark.saved or node.mark.job)
    )


def _stop(job: Job, namespace: str) -> Act:
    path = f"{BATCH}/{namespace}/jobs/{job.name}"
    body = {"propagationPolicy": "Background", "preconditions": {"uid": job.uid}}
    # It is gone, or another has its name by now.
    return Act(job.instance, "stop its backup", "DELETE", path, body, needless=frozenset({404, 409}))


def _evict(instance: str, pod: Pod, *, dry: bool = False) -> Act:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        # A StatefulSet's next pod has the same name, elsewhere.
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    # It is gone, or another has its name by now.
    path = f"{pod.path}/eviction{'?dryRun=All' if dry else ''}"
    return Act(instance, f"evict {pod.title}", "POST", path, body, needless=frozenset({404, 409}), begins=not dry)


def _write(node: Node, mark: Mark, why: str) -> Act:
    """Cordon and mark at once: there is never the one without the other."""
    body = {"metadata": {"annotations": {MARK: make_mark(mark)}}, "spec": {"unschedulable": True}}
    return Act(mark.request.instance, f"{why} {node.name}", "PATCH", node.path, body, node, first=True)


def _release(node: Node) -> Act:
    """Where somebody has taken the cordon away, nothing is left but the mark. What HyperPod bars stays cordoned: it may have
    cordoned it meanwhile, and two cordons look like one."""
    body: Json = {"metadata": {"annotations": {MARK: None}}}
    if node.mark and node.mark.ours and node.cordoned and not node.barred:
        body["spec"] = {"unschedulable": None}
    return Act(node.instance, f"give {node.name} back", "PATCH", node.path, body, node)


def _named(pods: Sequence[Pod]) -> str:
    shown = [
        f"{pod.title}{f' of {pod.owner}' if pod.owner else ''}{' (ending)' if pod.leaving else ''}" for pod in pods
    ]
    return f"pods: {_some(shown)}" if pods else ""


def _some(items: Sequence[str], shown: int = 3) -> str:
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return f"{', '.join(items[:shown])}{more}"


# -- a look -----------------------------------------------------------------------------------------------------------


class Drainer:
    """Reads, decides, acts, tells: once for each question."""

    def __init__(
        self,
        api: Api,
        backup: str | None,
        *,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`backup`: NAMESPACE/NAME of the CronJob that saves a node; absent: nothing is saved."""
        self._api, self._backup, self._log, self._clock = api, backup, log, clock

    def look(self, event: Any, now: float) -> Json:
        """The answer to one event."""
        began, refused, problem = self._clock(), "", ""
        asked: Request | None = None
        try:
            asked = parse_event(event, now)
        except RequestError as error:
            refused = f"the request of the {WRITER} {error}"
        requests = {request.instance: request for request in asked.nodes if request.expires > now} if asked else {}
        snapshot = ClusterSnapshot(now, {}, {}, frozenset(), None)
        judged: dict[str, Judgement] = {}
        done, failed = 0, dict[str, list[str]]()
        try:
            snapshot = read_snapshot(
                self._api, self._backup, now, wanted=any(request.backup for request in requests.values())
            )
        except KubernetesError as error:
            problem = str(error)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            problem = f"Kubernetes answers with something that this drainer cannot read: {error!r}"
        else:
            # Without a request what is held is told of, and goes on being held until its lease is over: a broken one ends
            # no drain either.
            requests = requests if asked else _held(snapshot)
            snapshot = self._admit(requests, snapshot)
            judged = judge_all(requests, snapshot)
            done, failed = self._act(decide(requests, judged, snapshot) if asked else give_back(requests, snapshot))
            problem = _not_given_back(failed, judged, snapshot)
        answer = Status(
            agent=VERSION,
            beat=round(now),
            requests={WRITER: asked.id} if asked else {},
            refused={WRITER: refused[:MESSAGE]} if refused else {},
            problem=problem[:MESSAGE],
            busy=dict.fromkeys(_busy(snapshot), ()),
            backup=self._backup,
            nodes=_tell(requests, judged, snapshot, failed),
        )
        self._log(_summary(answer, done, failed, self._clock() - began))
        return make_status(answer)

    def _admit(self, requests: Mapping[str, NodeRequest], snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """With what the server says of the backup's Job before anything leaves a node for it: nothing is made by this."""
        sample = probe(requests, snapshot)
        if sample is None or snapshot.hook is None:
            return snapshot
        try:
            self._api.change("POST", *sample)
        except KubernetesError as error:
            said = f"the server would refuse its Job: {error.said}"
            hook = replace(snapshot.hook, trouble=said, lasting=400 <= error.status < 500 and error.status != 429)
            return replace(snapshot, hook=hook)
        return snapshot

    def _act(self, acts: Iterable[Act]) -> tuple[int, dict[str, list[str]]]:
        """How much was done, and what could not be, by instance."""
        done, stopped, began = 0, set(), self._clock()
        failed: dict[str, list[str]] = {}
        for act in acts:
            if act.instance in stopped:
                continue
            late = self._clock() - began > ACT_S
            said = LATER if late else self._do(act)
            if said:
                failed.setdefault(act.instance, []).append(said)
                stopped |= {act.instance} if act.first or late else set()
            else:
                done += 1
        return done, failed

    def _do(self, act: Act) -> str:
        """What went wrong, or nothing."""
        made: Json = {}
        try:
            if act.node is None:
                made = self._api.change(act.method, act.path, act.body)
            else:
                self._change_node(act, act.node)
        except KubernetesError as error:
            return "" if error.status in act.needless else _why(act, error)
        return self._do(act.then(made)) if act.then else ""

    def _change_node(self, act: Act, node: Node) -> None:
        """Unless the node has changed since it was read, in what this is about; a status comes in between now and then."""
        try:
            self._patch(act, node.version)
        except KubernetesError as error:
            if error.status != 409:
                raise
            fresh = parse_node(self._api.get(act.path), 0.0)
            now, then = ((each.cordoned, each.mark, each.instance, each.barred) for each in (fresh, node))
            if now != then:
                raise
            self._patch(act, fresh.version)

    def _patch(self, act: Act, version: str) -> None:
        body = {**act.body, "metadata": {**act.body["metadata"], "resourceVersion": version}}
        self._api.change("PATCH", act.path, body, MERGE)


def _why(act: Act, error: KubernetesError) -> str:
    if error.causes:
        return f"{act.why}: waits for a disruption budget: {'; '.join(error.causes)}"
    if act.node and error.status == 409:
        return f"{act.why}: somebody else changed the node at the same moment; the next look sees what it is now"
    return f"{act.why}: {error.said}"


def _held(snapshot: ClusterSnapshot) -> dict[str, NodeRequest]:
    """What is held, and its lease is not over."""
    nodes = [node for some in snapshot.nodes.values() for node in some if node.instance]
    marked = {node.instance: node.mark.request for node in nodes if node.mark}
    return {
        instance: request
        for instance, request in marked.items()
        if request.request_id and request.expires > snapshot.now
    }


def _not_given_back(
    failed: Mapping[str, Sequence[str]], judged: Mapping[str, Judgement], snapshot: ClusterSnapshot
) -> str:
    """Which nodes stay cordoned that nobody wants any more: no other word tells of them."""
    names = [
        f"{node.name} ({failed[instance][0]})"
        for instance in failed
        if instance not in judged
        for node in snapshot.nodes.get(instance, ())
        if node.mark
    ]
    return f"not given back: {_some(names)}" if names else ""


def _busy(snapshot: ClusterSnapshot) -> list[str]:
    """Instances that have pods, by which who lowers a count chooses others."""
    return sorted(
        instance
        for instance, nodes in snapshot.nodes.items()
        if instance and any(n.name in snapshot.busy for n in nodes)
    )


def _tell(
    requests: Mapping[str, NodeRequest],
    judged: Mapping[str, Judgement],
    snapshot: ClusterSnapshot,
    failed: Mapping[str, Sequence[str]],
) -> dict[str, NodeStatus]:
    told: dict[str, NodeStatus] = {}
    room, most = TOLD, min(MESSAGE, SAID // max(1, len(judged)))
    for instance, one in judged.items():
        request = requests[instance]
        names = [node.name for node in snapshot.nodes.get(instance, ())]
        pods = [pod for name in names for pod in snapshot.pods.get(name, ())][: min(room, TOLD_OF_A_NODE)]
        room -= len(pods)
        told[instance] = NodeStatus(
            state=one.state,
            message=_plain("; ".join(filter(None, (one.message, *_few(failed.get(instance, ()))))))[:most],
            requests={WRITER: request.request_id},
            saved=one.saved,
            absent=one.absent,
            address=request.address,
            jobs=tuple(StatusJob(pod.title, pod.owner) for pod in pods),
            running=sum(len(snapshot.pods.get(name, ())) for name in names),
        )
    return told


def _plain(text: str) -> str:
    """One line of what JSON writes in one byte each."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in one_line(text))


def _few(items: Sequence[str], shown: int = 3) -> Iterable[str]:
    yield from items[:shown]
    if len(items) > shown:
        yield f"and {len(items) - shown} more refusals"


def _summary(answer: Status, done: int, failed: Mapping[str, Sequence[str]], seconds: float) -> str:
    """One line for the log, of nothing but checked words and of what Kubernetes says."""
    states = [node.state for node in answer.nodes.values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) or "no node"
    wrong = [each for some in failed.values() for each in some]
    said = f"{answer.requests.get(WRITER, 'a question')}: {counts}; {len(answer.busy)} busy; {done} done"
    more = (f"{len(wrong)} not: {wrong[0]}" if wrong else "", *answer.refused.values(), answer.problem)
    return one_line("; ".join(filter(None, (said, *more, f"{seconds:.1f} s"))))[:2000]
