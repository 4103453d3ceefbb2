"""Drain nodes of an EKS cluster that somebody wants to take, after their pods have left and their data is saved.

For each node that a request names: cordon it, evict its pods, which disruption budgets may delay, wait until none is left,
save it by a Job of the user's CronJob, say `ready`. What nobody wants any more goes back to work. It keeps nothing: the mark on
a held node and the backups' Jobs are all that it knows, so a look may end anywhere, and the next one comes to the same end.
It never undoes a cordon of another's: a person's, HyperPod's or Karpenter's. What it holds it holds until a lease is over,
which the mark tells; but only a look ends it.

`judge` and `give_back` decide, from what one look has read; `Drainer` reads, acts and answers.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .kubernetes import Api, Json, KubernetesError, one_line
from .request import SCHEMA, WRITER, Asked, RequestError, Wish, parse_event
from .world import (
    BATCH,
    JOB_LABEL,
    JOB_REQUEST,
    MARK,
    Hook,
    Job,
    Mark,
    Node,
    Pod,
    World,
    make_mark,
    parse_node,
    read_world,
)

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


class Act(NamedTuple):
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


class Judgement(NamedTuple):
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


def judge(wish: Wish, world: World) -> Judgement:
    """What becomes of one instance that a request names: the first that holds."""
    nodes = world.nodes.get(wish.instance, ())
    if not nodes:
        doubt = _doubt(world)
        return Judgement("unknown", "; ".join(filter(None, ("Kubernetes has no such node", doubt))), absent=not doubt)
    if len(nodes) > 1:
        return Judgement("unknown", f"{len(nodes)} nodes say that they are it: {_some([each.name for each in nodes])}")
    if nodes[0].karpenter:
        said = (
            f"is a node of Karpenter's (NodePool {nodes[0].karpenter}), which decides by itself when a node goes: end what runs "
            "there, or delete the NodePool, and wait until the node has gone; or deploy without scale_down.drain"
        )
        return Judgement("refused", said, keep=False)
    one = _judge_node(wish, nodes[0], world)
    return one._replace(acts=(*_renew(wish, nodes[0], one), *one.acts))


def _renew(wish: Wish, node: Node, one: Judgement) -> tuple[Act, ...]:
    """The lease of what goes on being held, unless the mark is written anyway."""
    mark = node.mark
    if mark is None or not node.cordoned or mark.wish.request != wish.request or not one.keep:
        return ()
    if any(act.node for act in one.acts) or abs(mark.wish.expires - wish.expires) <= RENEW_S:
        return ()
    return (_write(node, mark._replace(wish=wish), "go on holding"),)


def _doubt(world: World) -> str:
    """Why it may have a node all the same that none of its nodes seems to be."""
    if not world.nodes:
        return "it lists no node at all"
    hidden = [node.name for node in world.nodes.get("", ()) if not node.no_instance]
    return f"it may be one that does not tell its instance: {_some(sorted(hidden))}" if hidden else ""


def _judge_node(wish: Wish, node: Node, world: World) -> Judgement:
    mark = node.mark if node.mark and node.mark.wish.request == wish.request else None
    held = mark is not None and node.cordoned
    late = wish.deadline <= world.now
    # Past the deadline under `force` only those are waited for that are on their way out: the rest ends with the node.
    pods = world.pods.get(node.name, ())
    left = tuple(pod for pod in pods if pod.leaving or not (late and wish.force))
    # A silent node may be one whose way to the API is cut, and its pods run on: it has the time that all have. Then it is lost.
    lost = late and node.dead and not world.cut_off
    left = () if lost else left
    hook = world.hook if wish.backup else None
    job = hook.jobs.get(job_name(wish, node)) if hook and held else None
    saved = (mark is not None and mark.saved) or (job is not None and job.state == "complete")
    note = "" if not held or (mark and mark.ours) else "was cordoned by somebody else, who has to uncordon it; "
    if node.dead:
        note += "does not respond, as most nodes; " if world.cut_off else "does not respond; "
    if held and not left and (hook is None or saved):
        acts = (
            (_write(node, mark._replace(wish=wish, saved=True), "is saved"),)
            if saved and mark and not mark.saved
            else ()
        )
        return Judgement("ready", note + _ready_message(pods, saved), acts, saved=saved)
    if held and lost:
        said = f"{note}cannot be saved: if it is lost, kubectl delete node {node.name}; {_named(pods)}"
        return Judgement("backup-failed", said.rstrip("; "))
    if late and not wish.force:
        # Nobody is evicted any more: it is only asked what keeps them.
        asks = tuple(_evict(wish.instance, pod, dry=True) for pod in pods[:ASKED] if not pod.leaving)
        said = f"{note}went back to work at its deadline; {_named(pods)}"
        return Judgement("timed-out", said.rstrip("; "), asks, keep=False)
    if hook and not saved and job is None and hook.trouble:
        # Before anything leaves the node: it would leave in vain.
        return Judgement("backup-failed" if hook.lasting else "draining", f"cannot be saved: {hook.trouble}")
    # What was cordoned before it was ours is another's cordon. One that the mark knows keeps its owner under a new wish.
    ours = node.mark.ours if node.mark else not node.cordoned
    hold = () if held else (_write(node, Mark(wish, ours or not node.cordoned, False, world.now), "cordon"),)
    if left or not held:
        evicted = tuple(_evict(wish.instance, pod) for pod in left if not pod.leaving)
        minutes = f"{max(0.0, wish.deadline - world.now) / 60:.0f} minutes left" if left else ""
        return Judgement("draining", note + "; ".join(filter(None, (_named(left), minutes))), (*hold, *evicted))
    if hook is None:
        raise AssertionError  # it was ready
    return _judge_backup(wish, node, job, hook, note)


def _judge_backup(wish: Wish, node: Node, job: Job | None, hook: Hook, note: str) -> Judgement:
    if job is None:
        return Judgement("backing-up", note, (_save(wish, node, hook, hook.cron_job),) if hook.cron_job else ())
    title = f"Job {hook.namespace}/{job.name}"
    if job.state == "failed":
        return Judgement("backup-failed", f"{note}could not be saved: {title}: {job.said}")
    return Judgement("backing-up", f"{note}{title}: {hook.pods.get(job.name) or 'has no pod'}")


def _ready_message(pods: Sequence[Pod], saved: bool) -> str:
    ended = f"what is left ends with the node; {_named(pods)}" if pods else ""
    return "; ".join(filter(None, ("is saved" if saved else "", ended)))


def give_back(keep: Mapping[str, Wish], world: World) -> tuple[Act, ...]:
    """What is ours and nobody wants. `keep`: the instances that somebody does, and what for."""
    acts = [
        _release(node) for nodes in world.nodes.values() for node in nodes if node.mark and node.instance not in keep
    ]
    for job in world.hook.jobs.values() if world.hook else ():
        wish = keep.get(job.instance)
        names = [job_name(wish, node) for node in world.nodes.get(job.instance, ())] if wish else []
        if job.state == "running" and job.name not in names:
            acts.append(_stop(job, world.hook.namespace if world.hook else ""))
    return tuple(acts)


def decide(wishes: Mapping[str, Wish], judged: Mapping[str, Judgement], world: World) -> list[Act]:
    """All that a request leads to. What goes back goes first, then all nodes are cordoned."""
    keep = {instance: wishes[instance] for instance, one in judged.items() if one.keep}
    # Each look begins with another node: pods that nobody may evict take their time, and none is to wait behind them.
    turn = round(world.now) % max(1, len(judged))
    each = [*judged.values()]
    acts = [act for one in (*each[turn:], *each[:turn]) for act in one.acts]
    return [*give_back(keep, world), *sorted(acts, key=lambda act: not act.first)]


def job_name(wish: Wish, node: Node) -> str:
    """The name of its backup's Job: only one that was made for this wish, and since the node was cordoned for it, proves
    anything. Where somebody had undone the cordon, pods may have come."""
    since = node.mark.since if node.mark else 0.0
    return f"drain-{wish.instance}-{hashlib.sha256(f'{wish.request} {since}'.encode()).hexdigest()[:8]}"


def make_job(wish: Wish, node: Node, hook: Hook, cron_job: Json) -> Json:
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
            "name": job_name(wish, node),
            "namespace": hook.namespace,
            "labels": {**(metadata.get("labels") or {}), JOB_LABEL: wish.instance},
            "annotations": {
                **(metadata.get("annotations") or {}),
                "cronjob.kubernetes.io/instantiate": "manual",
                JOB_REQUEST: wish.request,
            },
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _save(wish: Wish, node: Node, hook: Hook, cron_job: Json) -> Act:
    path = f"{BATCH}/{hook.namespace}/jobs"
    return Act(wish.instance, "make its backup's Job", "POST", path, make_job(wish, node, hook, cron_job))


def _stop(job: Job, namespace: str) -> Act:
    path = f"{BATCH}/{namespace}/jobs/{job.name}"
    return Act(
        job.instance, "stop its backup", "DELETE", path, {"propagationPolicy": "Background"}, needless=frozenset({404})
    )


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
    return Act(instance, f"evict {pod.title}", "POST", path, body, needless=frozenset({404, 409}))


def _write(node: Node, mark: Mark, why: str) -> Act:
    """Cordon and mark at once: there is never the one without the other."""
    body = {"metadata": {"annotations": {MARK: make_mark(mark)}}, "spec": {"unschedulable": True}}
    return Act(mark.wish.instance, f"{why} {node.name}", "PATCH", node.path, body, node, first=True)


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
        asked: Asked | None = None
        try:
            asked = parse_event(event, now)
        except RequestError as error:
            refused = f"the request of the {WRITER} {error}"
        wishes = {wish.instance: wish for wish in asked.wishes if wish.expires > now} if asked else {}
        world = World(now, {}, {}, frozenset(), None)
        judged: dict[str, Judgement] = {}
        done, failed = 0, dict[str, list[str]]()
        try:
            world = read_world(self._api, self._backup, now, wanted=any(wish.backup for wish in wishes.values()))
        except KubernetesError as error:
            problem = str(error)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            problem = f"Kubernetes answers with something that this drainer cannot read: {error!r}"
        else:
            # Without a request what is held is told of, and goes on being held until its lease is over: a broken one ends
            # no drain either.
            wishes = wishes if asked else _held(world)
            judged = {instance: judge(wish, world) for instance, wish in wishes.items()}
            done, failed = self._act(decide(wishes, judged, world) if asked else give_back(wishes, world))
            problem = _not_given_back(failed, judged, world)
        answer = {
            "schema": SCHEMA,
            "agent": VERSION,
            "beat": round(now),
            "requests": {WRITER: asked.id} if asked else {},
            "refused": {WRITER: refused[:MESSAGE]} if refused else {},
            "problem": problem[:MESSAGE],
            "busy": _busy(world),
            "backup": self._backup,
            "nodes": _tell(wishes, judged, world, failed),
        }
        self._log(_summary(answer, done, failed, self._clock() - began))
        return answer

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
        try:
            if act.node is None:
                self._api.change(act.method, act.path, act.body)
            else:
                self._change_node(act, act.node)
        except KubernetesError as error:
            return "" if error.status in act.needless else _why(act, error)
        return ""

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
    return f"{act.why}: {error.said}"


def _held(world: World) -> dict[str, Wish]:
    """What is held, and its lease is not over."""
    nodes = [node for some in world.nodes.values() for node in some if node.instance]
    marked = {node.instance: node.mark.wish for node in nodes if node.mark}
    return {instance: wish for instance, wish in marked.items() if wish.request and wish.expires > world.now}


def _not_given_back(failed: Mapping[str, Sequence[str]], judged: Mapping[str, Judgement], world: World) -> str:
    """Which nodes stay cordoned that nobody wants any more: no other word tells of them."""
    names = [
        f"{node.name} ({failed[instance][0]})"
        for instance in failed
        if instance not in judged
        for node in world.nodes.get(instance, ())
        if node.mark
    ]
    return f"not given back: {_some(names)}" if names else ""


def _busy(world: World) -> list[str]:
    """Instances that have pods, by which who lowers a count chooses others."""
    return sorted(
        instance for instance, nodes in world.nodes.items() if instance and any(n.name in world.busy for n in nodes)
    )


def _tell(
    wishes: Mapping[str, Wish], judged: Mapping[str, Judgement], world: World, failed: Mapping[str, Sequence[str]]
) -> Json:
    told: Json = {}
    room, most = TOLD, min(MESSAGE, SAID // max(1, len(judged)))
    for instance, one in judged.items():
        wish = wishes[instance]
        names = [node.name for node in world.nodes.get(instance, ())]
        pods = [pod for name in names for pod in world.pods.get(name, ())][: min(room, TOLD_OF_A_NODE)]
        room -= len(pods)
        told[instance] = {
            "state": one.state,
            "requests": {WRITER: wish.request},
            "jobs": [{"id": pod.title, "user": pod.owner} for pod in pods],
            "saved": one.saved,
            "message": _plain("; ".join(filter(None, (one.message, *_few(failed.get(instance, ()))))))[:most],
            **({"ip": wish.address} if wish.address else {}),
            **({"absent": True} if one.absent else {}),
        }
    return told


def _plain(text: str) -> str:
    """One line of what JSON writes in one byte each."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in one_line(text))


def _few(items: Sequence[str], shown: int = 3) -> Iterable[str]:
    yield from items[:shown]
    if len(items) > shown:
        yield f"and {len(items) - shown} more refusals"


def _summary(answer: Json, done: int, failed: Mapping[str, Sequence[str]], seconds: float) -> str:
    """One line for the log, of nothing but checked words and of what Kubernetes says."""
    states = [each["state"] for each in answer["nodes"].values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) or "no node"
    wrong = [each for some in failed.values() for each in some]
    said = f"{answer['requests'].get(WRITER, 'a question')}: {counts}; {len(answer['busy'])} busy; {done} done"
    more = (f"{len(wrong)} not: {wrong[0]}" if wrong else "", *answer["refused"].values(), answer["problem"])
    line = one_line("; ".join(filter(None, (said, *more, f"{seconds:.1f} s"))))[:2000]
    # Half a character, which JSON can hold, can be written by nobody.
    return line.encode(errors="replace").decode()
