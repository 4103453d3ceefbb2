"""One lifetime of a cluster from a seed: it is created and changed a few times, with any events in between."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import get_args

from cdk_hyperpod._lambda.hyperpod.scale_down.poll.provider import Provider

from . import switches
from .actors import Actors
from .changes import CHANGES, SOFTWARE_CHANGES
from .clock import Clock
from .cloudformation import CLUSTER, NAME, RESOURCES, STACK, TAG, Deployment, Stack, Template, Trouble
from .draining import ByAgent, Draining
from .eks import ByDrainer, EksReadiness
from .faults import Faults
from .forger import Forger
from .function import FINALIZE, PREPARE, Framework, MakeProvider, Write
from .hyperpod import HyperPod, Measure, Pace, Refused, Spec
from .judge import Cause, Expected, Judge
from .profiles import PROFILES, Profile, profile_of
from .readiness import Readiness

ROLE = "arn:aws:iam::111122223333:role/nodes"


@dataclass(slots=True)
class Outcome:
    """The result of one lifetime."""

    seed: int
    profile: str
    faults: list[str] = field(default_factory=list)
    unavoidable: Counter[str] = field(default_factory=Counter)
    deployments: Counter[str] = field(default_factory=Counter)
    taken: int = 0
    """Nodes that the function deleted by id."""
    refused: int = 0
    """Updates that prepare refused."""
    story: str = ""


def live(seed: int, *, make: MakeProvider = Provider, story: bool = False) -> Outcome:
    """The lifetime of this seed."""
    return Lifetime(seed, make=make, story=story).run()


class Lifetime:
    def __init__(self, seed: int, *, make: MakeProvider = Provider, story: bool = False) -> None:
        self.seed, self.profile_name = seed, profile_of(seed)
        self.profile: Profile = PROFILES[self.profile_name]
        self.draw = Random(f"{seed} the story")
        """Decides the initial state and the changes of the file."""
        self.rng = Random(f"{seed} as it goes")
        """Decides the events on the way."""
        self.clock = Clock()
        self.switches = switches.draw(self.draw)
        self.story: list[tuple[float, str]] | None = [] if story else None
        continuous = self.draw.random() < self.profile.continuous
        self.pod = HyperPod(self.clock, self.rng, self.switches, self._pace(), continuous=continuous)
        self.pod.story = self.story
        self.pod.never_patched = self.draw.random() < self.profile.never_patched
        if self.profile.patches:
            self.pod.software.failures, self.pod.software.protected = 0.2, 0.1
        self.writes: list[Write] = []
        self.judge = Judge(self)
        self.forger = Forger(self) if make is Provider else None
        """Of functions that are not broken on purpose."""
        self.actors = Actors(self)
        self.faults = Faults(self)
        self.stack = Stack(self, Framework(self, make))
        self.autoscaled: tuple[str, ...] = ()
        self.names_ever: list[str] = []
        dice = Random(f"{seed} the drains")
        self.draining: Draining | None = None
        if dice.random() < self.profile.drains:
            if self.profile.eks:
                self.draining = ByDrainer(self, dice)
                self.judge.readiness = EksReadiness(self, self.draining)
            else:
                self.draining = ByAgent(self, dice)
                self.judge.readiness = Readiness(self, self.draining)
        self._since = (0, 0)
        """Actions and failures when the last deployment began."""

    # -- what the parts ask --

    def hyperpod(self, name: str) -> HyperPod:
        """The cluster of that name, or ARN."""
        if not self.pod.exists or name not in (self.pod.name, self.pod.arn):
            raise Refused(self.switches.not_found, "Cluster not found.")
        return self.pod

    def measures(self) -> dict[str, Measure]:
        return {name: self.pod.measure(group) for name, group in self.pod.groups.items()}

    def tell(self, text: str) -> None:
        if self.story is not None:
            self.story.append((self.clock.now, text))

    def between_calls(self) -> None:
        if self.profile.most_deeds:
            self.actors.before_call()
        if self.draining:
            self.draining.between_calls()

    def after_write(self) -> None:
        self.actors.after_write()

    def deployment_begins(self, deployment: Deployment) -> None:
        self.actors.some_time(self.profile.in_time, 1200)
        if self.draining:
            self.draining.deployment_begins(deployment)

    def rollback_begins(self, deployment: Deployment) -> None:
        self.actors.maybe(self.profile.in_rollback)
        self.actors.some_time(self.profile.in_rollback, 300)
        if self.draining:
            self.draining.rollback_begins(deployment)

    def before_the_clusters_update(self) -> None:
        self.clock.pass_time(self.rng.uniform(1, 6))
        self.actors.maybe(self.profile.before_cluster)

    # -- the lifetime --

    def run(self) -> Outcome:
        outcome = Outcome(self.seed, self.profile_name)
        file = self._first_file()
        if self.draining:
            file = self.draining.first(file)
        self.tell(
            f"seed {self.seed}, profile {self.profile_name}, {'continuous' if self.pod.continuous else 'standard'}"
        )
        self.tell(str(self.switches))
        if self.draw.random() < 0.1:
            self._deploy(file, "the first deployment", outcome, quiet=True)
        else:
            self._already_there(file)
        if self.draining:
            self.draining.begin(file)
        for _ in range(self.draw.choice([1, 2, 2, 3])):
            self.actors.maybe(self.profile.before_deploying)
            self.clock.pass_time(self.draw.choice([5.0, 60.0, 600.0, 4000.0, 30000.0]))
            file, what = self._change(file)
            if self.draining:
                file = self.draining.change(file)
            self._deploy(file, what, outcome)
            if self.stack.status.endswith("FAILED") and self.stack.status != "UPDATE_FAILED":
                break
        if self.stack.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE") and self.draw.random() < 0.5:
            self._deploy(file, "the same again", outcome)
            self._deploy(replace(file, digest=file.digest + "."), "the same, with another tag", outcome)
        if self.stack.status.endswith("COMPLETE") and self.draw.random() < 0.05:
            self.stack.destroy()
        self.clock.pass_time(4000)
        self.judge.look_at_endings()
        if self.draining:
            self.draining.finish()
            self.judge.lifetime_ended()
        outcome.faults, outcome.unavoidable = self.judge.faults, self.judge.unavoidable
        outcome.taken = sum(len(write.took) for write in self.writes)
        if self.story is not None:
            outcome.story = "\n".join(f"{_time(at)}  {text}" for at, text in self.story)
        return outcome

    def _deploy(self, file: Template, what: str, outcome: Outcome, *, quiet: bool = False) -> None:
        trouble: Trouble = "none"
        ours = self.pod.tags
        if not quiet and self.pod.exists and self.draw.random() < 0.01:
            # The cluster in this stack's place is another stack's: a person created it again, for example.
            self.pod.tags = {"team": "research"} if self.draw.random() < 0.5 else {TAG: STACK + "0"}
        if not quiet and self.draw.random() < self.profile.troubles:
            trouble = self.draw.choice(get_args(Trouble)[1:])
        rolls_back = quiet or self.draw.random() >= self.profile.left_as_it_is
        known = self.stack.known[CLUSTER]
        self.tell(f"--- deploys: {what}{'' if trouble == 'none' else f' ({trouble})'}: {_short(file)}")
        self._tell_nodes()
        expected = self._expected(known, file)
        again = self._is_the_same(file)
        faults = len(self.judge.faults)
        self._since = len(self.actors.deeds), self.pod.failures
        deployment = self.stack.deploy(file, what=what, trouble=trouble, rolls_back=rolls_back)
        calm = self._since == (len(self.actors.deeds), self.pod.failures)
        undisturbed = calm and not any(request.faults for request in deployment.requests)
        self.judge.deployment_ended(deployment, expected if undisturbed else None)
        if again and calm:
            self.judge.same_again(deployment)
        self._continue_rollback(deployment)
        if deployment.outcome == "rollback failed" and len(self.judge.faults) == faults:
            self.judge.spare(Cause.NOT_ENDED)
        self.pod.tags = ours or self.pod.tags
        outcome.deployments[deployment.outcome] += 1
        outcome.refused += sum(
            request.kind == PREPARE and not request.rollback and not request.over and request.succeeded is False
            for request in deployment.requests
        )
        self.tell(f"=== {what}: {deployment.outcome}")

    def _continue_rollback(self, deployment: Deployment) -> None:
        """At most three times."""
        for _ in range(3):
            if deployment.outcome != "rollback failed":
                return
            self.clock.pass_time(self.draw.choice([60.0, 4000.0, 20000.0]))
            # A person fixes the cause.
            self.faults.status_denied = self.faults.events_denied = self.pod.never_patched = False
            self.stack.continue_rollback(deployment)
            self.judge.look_at_endings()

    def deploy_again(self, retry: str) -> None:
        """The same deployment, with another `retry`."""
        file = self.stack.known[PREPARE]
        assert file is not None
        self._deploy(replace(file, retry=retry), "the same, with another retry", Outcome(0, ""), quiet=True)

    def _is_the_same(self, file: Template) -> bool:
        """The last deployment succeeded with this file, except for a tag or the retry, and nothing has interfered since
        it began."""
        deployments = self.stack.deployments
        if not deployments or deployments[-1].outcome != "succeeded" or not self.pod.exists:
            return False
        last = replace(deployments[-1].new, digest=file.digest, retry=file.retry)
        unchanged = (len(self.actors.deeds), self.pod.failures) == self._since
        return last == file and unchanged and self.pod.tags.get(TAG) == STACK

    def _expected(self, known: Template | None, file: Template) -> Expected | None:
        """Absent: too much is in progress or unknown to specify the result."""
        pod = self.pod
        if known is None or not pod.exists or pod.never_patched or self.stack.dirty:
            return None
        never = self.switches.lowering == "never"
        if never and not pod.continuous:
            return None
        new_guard = self.stack.known[PREPARE] is None
        if new_guard and (never or self.switches.minimum_blocks or file.name != known.name):
            return None
        calm = pod.status == "InService" and all(
            group.status == "InService"
            and not group.under_way
            and len(group.live) == len(group.nodes)
            and group.lacks_capacity_until < self.clock.now
            and len(group.live) == group.target
            and not group.lowering
            and all(node.status == "Running" for node in group.nodes)
            for group in pod.groups.values()
        )
        return Expected(self, known, file) if calm else None

    # -- what is drawn --

    def _pace(self) -> Pace:
        profile, draw = self.profile, self.draw
        pace = Pace(boot_failures=profile.boot_failures, in_use=profile.in_use)
        if draw.random() < profile.slow:
            pace.shut_down = draw.choice([(200, 1500), (1000, 4000), (3000, 12000)])
            pace.boot = draw.choice([(100, 600), (600, 3000), (2000, 9000)])
            pace.launch = draw.choice([(5, 90), (100, 2000)])
        elif draw.random() < 0.3:
            pace.shut_down, pace.boot, pace.launch = (5, 60), (10, 90), (1, 30)
        return pace

    def spec(self, name: str, count: int, minimum: int, node_type: str | None) -> Spec:
        spec: Spec = {
            "InstanceGroupName": name,
            "InstanceType": "ml.m5.4xlarge" if node_type == "Controller" else "ml.p5.48xlarge",
            "InstanceCount": count,
            "ExecutionRole": ROLE,
            "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-train/1", "OnCreate": "run.sh"},
        }
        if self.pod.continuous:
            spec["MinInstanceCount"] = minimum
        if node_type:
            spec["SlurmConfig"] = {"NodeType": node_type} | (
                {"PartitionNames": ["p"]} if node_type == "Compute" else {}
            )
        return spec

    def _first_file(self) -> Template:
        draw = self.draw
        eks = draw.random() < 0.4 or bool(self.profile.autoscaled and draw.random() < 0.7)
        if self.profile.drains == 1:
            eks = self.profile.eks
        elif eks and self.draining:
            self.draining, self.judge.readiness, self.pod.watch = None, None, None
        groups = [] if eks else [self.spec("controller", 1, 0, "Controller")]
        for name in draw.sample(["p5", "trn1", "p5-long", "extra"], draw.choice([1, 2, 2, 3])):
            count = draw.randint(1, 7)
            minimum = draw.choice([0, 0, draw.randint(0, count), count])
            groups.append(self.spec(name, count, minimum, None if eks else "Compute"))
        autoscaled: tuple[str, ...] = ()
        if eks and draw.random() < self.profile.autoscaled:
            autoscaled = (draw.choice(groups)["InstanceGroupName"],)
        self.autoscaled = autoscaled
        self.names_ever = [spec["InstanceGroupName"] for spec in groups]
        return Template(tuple(groups), autoscaled=autoscaled, continuous=self.pod.continuous, eks=eks)

    def _already_there(self, file: Template) -> None:
        """The stack as an earlier deployment left it, some time ago, perhaps with manual changes since."""
        pod, draw = self.pod, self.draw
        tags = {TAG: STACK}
        pod.create(NAME, file.groups, tags=tags, network=file.vpc, orchestrator=file.orchestrator, by="cloudformation")
        for group in pod.groups.values():
            if not group.controller and draw.random() < self.profile.drifts:
                group.target = max(group.minimum, group.target + draw.choice([-1, 1, 2]))
                group.nodes = group.nodes[: group.target]
                while len(group.nodes) < group.target:
                    pod.request_node(group, "person")
        pod.give_instances()
        for group in pod.groups.values():
            for node in group.nodes:
                node.launched = node.requested = -draw.choice([1000.0, 50000.0, 900000.0]) - draw.random()
                node.outdated = draw.random() < 0.15
                if not group.controller and draw.random() < 0.04:
                    pod.fail(node)
        self.stack.created = -1e6
        if draw.random() < 0.5:
            self.stack.updated = -5e5
        self.stack.known = dict.fromkeys(RESOURCES, file)
        if draw.random() < 0.05:  # The guard is added to a stack that already has the cluster.
            self.stack.known[PREPARE] = self.stack.known[FINALIZE] = None
        self.stack.stable = dict(self.stack.known)
        self.stack.was_deployed()
        self.stack.status = "CREATE_COMPLETE" if self.stack.updated is None else "UPDATE_COMPLETE"

    def _change(self, file: Template) -> tuple[Template, str]:
        """The changed file, and a description of the change."""
        draw = self.draw
        failed = bool(self.stack.deployments) and self.stack.deployments[-1].outcome not in ("succeeded", "no changes")
        if failed and draw.random() < 0.15:
            return file, "the same after a failure"
        if failed and draw.random() < 0.3 and (before := self.stack.known[CLUSTER]):
            return replace(before, digest=before.digest + "-"), "the file put back after a failure"
        whats = []
        for _ in range(draw.choice([1, 1, 1, 2])):
            changes = CHANGES | SOFTWARE_CHANGES if self.profile.patches else CHANGES
            kind = draw.choices(list(changes), [weight for weight, _ in changes.values()])[0]
            file = changes[kind][1](self, file)
            whats.append(kind)
        if draw.random() < 0.1:
            file = replace(file, nodes_to_delete=())
        file = replace(file, max_nodes=draw.choice([16, 16, 16, 16, 16, 16, 50, 2]))
        return file, " and ".join(whats)

    def some_id(self) -> str:
        return f"i-{self.draw.getrandbits(68):017x}"

    def _tell_nodes(self) -> None:
        if self.story is None:
            return
        for group in self.pod.groups.values():
            nodes = ", ".join(
                f"{node.name}{'' if node.status == 'Running' else ' ' + node.status}" for node in group.nodes
            )
            self.tell(f"    {group.name} ({group.status}) target {group.target} minimum {group.minimum}: {nodes}")


def _short(file: Template) -> str:
    groups = ", ".join(
        f"{spec['InstanceGroupName']}={spec['InstanceCount']}"
        + (f"≥{spec['MinInstanceCount']}" if spec.get("MinInstanceCount") else "")
        for spec in file.groups
    )
    more = f"; nodes_to_delete {', '.join(file.nodes_to_delete)}" if file.nodes_to_delete else ""
    more += f"; instance_groups_to_delete {', '.join(file.groups_to_delete)}" if file.groups_to_delete else ""
    more += f"; autoscaled {', '.join(file.autoscaled)}" if file.autoscaled else ""
    return f"{groups}{more}; max_nodes {file.max_nodes}"


def _time(seconds: float) -> str:
    sign = "-" if seconds < 0 else " "
    seconds = abs(seconds)
    return f"{sign}{int(seconds // 3600):02d}:{int(seconds // 60 % 60):02d}:{seconds % 60:04.1f}"
