"""The commands. Each returns its exit code, and raises EngineError with one line if it fails."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cdk_hyperpod.cli import tables
from cdk_hyperpod.loader import load_config
from cdk_hyperpod_local import daemon, environment, installation, kubectl
from cdk_hyperpod_local.apps import App
from cdk_hyperpod_local.assemblies import Stack, are_equal, stacks, warnings
from cdk_hyperpod_local.cdk import Cdk, Result
from cdk_hyperpod_local.commands import failure, removal, report, spelling
from cdk_hyperpod_local.commands.progress import Progress
from cdk_hyperpod_local.errors import EngineError
from cdk_hyperpod_local.places import Place
from cdk_hyperpod_local.session import LocalAws

Json = Any

# For the synthesis only, which looks up nothing but zones.
_ANY_REGION = "us-east-1"
_WOULD_DELETE = 2
"""Exit code of `plan`: nodes or groups would be deleted."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """`given`: None for a command without an app. `parameters`: for the templates, as with `cdk deploy --parameters`.

    `confirmed`: `reset` does not ask.
    """

    place: Place
    speed: float
    given: App | None = None
    parameters: tuple[str, ...] = ()
    confirmed: bool = False

    @property
    def app(self) -> App:
        assert self.given is not None
        return self.given

    @property
    def assembly(self) -> Path:
        """The cloud assembly that was deployed for this app."""
        return self.place.assemblies / self.app.key


def deploy(job: Job) -> int:
    _check(job)
    job.app.refuse_read_only()
    with _alone(job.place):
        began = time.monotonic()
        _start(job)
        found = _stacks(job, _synthesize(job, job.assembly))
        where = found[0]
        aws = LocalAws(place=job.place, region=where.region, account=where.account)
        if not _is_bootstrapped(aws):
            _say(f"cdk bootstrap aws://{where.account}/{where.region}")
            quiet = Cdk(place=job.place, region=where.region, account=where.account)
            _require_success(quiet.bootstrap(), "cdk bootstrap failed")
        _clear_failed_first(aws, found)
        for text in warnings(job.assembly):
            tables.say(f"warning: {text}")
        ended = len(_ended(aws))
        _deploy_stacks(job, aws, found)
        print()
        if summary := report.summary(aws, found, _ended(aws)[ended:]):
            print(summary)
        print(report.how_to_go_on(job.place, job.app, time.monotonic() - began))
        return 0


def _deploy_stacks(job: Job, aws: LocalAws, found: tuple[Stack, ...]) -> None:
    """`cdk deploy`, with its output in a log. Raises EngineError with the reason if it fails, after the nodes that it deleted."""
    log = job.place.deployment_log
    _say(f"cdk deploy --all; its output goes to {_short(log)}")
    cdk = Cdk(place=job.place, region=aws.region, account=aws.account, log=log)
    given = [word for item in job.parameters for word in ("--parameters", item)]
    began, nodes, ended = datetime.now(UTC), failure.nodes(aws), len(_ended(aws))
    with Progress(aws.client("cloudformation"), [stack.name for stack in found]) as progress:
        result = cdk.deploy(job.assembly, *given)
        if not result.ok:
            progress.refuse(failure.failed(aws, found, began))
    if result.ok:
        return
    _require_engine(job.place)
    deleted = failure.deleted(nodes, failure.nodes(aws), _ended(aws)[ended:])
    more = failure.where_to_read_more(_short(log), _short(job.place.log))
    tables.say("", *deleted, *more)
    raise EngineError(failure.reason(aws, found, began, result.output))


def diff(job: Job) -> int:
    _check(job)
    job.app.refuse_read_only()
    with _alone(job.place):
        _start(job)
        assembly = _synthesize(job, job.place.folder / "diff")
        found = _stacks(job, assembly)
        shown = Cdk(place=job.place, region=found[0].region, account=found[0].account, show=True).diff(assembly)
        if shown.code:
            return shown.code
        planned = _run_tool(job, "plan")
        return 0 if planned == _WOULD_DELETE else planned  # a diff that deletes nodes is not a failure


def plan(job: Job) -> int:
    _check(job)
    with _alone(job.place):
        _require_running(job.place)
        if job.app.config is None:
            raise EngineError(
                "plan: this app has no cluster file to compare with the live cluster. Name the file with --config, or run "
                f"`{spelling.command('diff', job.place)}`, which works with any app"
            )
        return _run_tool(job, "plan")


def drift(job: Job) -> int:
    with _alone(job.place):
        _require_running(job.place)
        found = _stacks(job, job.assembly if job.assembly.exists() else _synthesize(job, job.assembly))
        return (
            Cdk(place=job.place, region=found[0].region, account=found[0].account, show=True).drift(job.assembly).code
        )


def destroy(job: Job) -> int:
    """Delete everything that was deployed to this engine, and the engine itself."""
    with _alone(job.place):
        assemblies = sorted(job.place.assemblies.glob("*/manifest.json"))
        if assemblies:
            _start(job)
        for manifest in assemblies:
            destroy_assembly(job.place, manifest.parent)
        daemon.remove(job.place)
        _say(f"the engine on port {job.place.port} and its folder are removed")
        return 0


def reset(job: Job) -> int:
    """Delete the engine with everything on it, also what `destroy` cannot delete. No stack operation runs."""
    if not job.place.folder.exists():
        _say(f"no engine has been started on port {job.place.port}: there is nothing to delete")
        return 0
    with _alone(job.place):
        if not job.confirmed:
            removal.confirm_reset(job.place)
        daemon.remove(job.place)
    _say(f"the engine on port {job.place.port} and its folder are removed")
    return 0


def shell(job: Job) -> int:
    _require_running(job.place)
    found = [stack for manifest in job.place.assemblies.glob("*/manifest.json") for stack in stacks(manifest.parent)]
    region, account = (found[0].region, found[0].account) if found else (_ANY_REGION, environment.ACCOUNT)
    made = environment.complete(job.place, region=region, account=account)
    if not sys.stdin.isatty():
        printed = environment.variables(job.place, region=region, account=account)
        printed |= kubectl.variables(job.place, os.environ)
        for name in environment.foreign(os.environ, printed):
            print(f"unset {name}")
        for name, value in printed.items():
            print(f"export {name}={shlex.quote(value)}")
        return 0
    made |= kubectl.variables(job.place, made)
    _say("in this shell, AWS is the local engine. `exit` leaves it")
    # The shell's exit code is that of the last command typed in it, and make would report it as a failure.
    subprocess.run([os.environ.get("SHELL", "/bin/bash")], env=made, check=False)
    return 0


def status(job: Job) -> int:
    pid = daemon.running(job.place)
    print(f"port {job.place.port}: " + (f"the engine is running as process {pid}" if pid else "no engine is running"))
    return 0 if pid else 3


def stop(job: Job) -> int:
    """End the process and keep its state. The next command continues with that state."""
    with _alone(job.place):
        ran = daemon.running(job.place)
        daemon.stop(job.place)
    what = "was ended" if ran else "was not running"
    kept = f". Its state is kept in {_short(job.place.folder)}" if job.place.folder.exists() else ""
    _say(f"the engine on port {job.place.port} {what}{kept}")
    return 0


def setup(job: Job) -> int:
    """Download what engines run on, so that the first deployment does not have to."""
    del job
    _say(f"the local AWS is installed in {_short(installation.ensure(_say).folder)}")
    return 0


COMMANDS: Mapping[str, Callable[[Job], int]] = {
    "deploy": deploy,
    "plan": plan,
    "diff": diff,
    "drift": drift,
    "destroy": destroy,
    "reset": reset,
    "shell": shell,
    "status": status,
    "stop": stop,
    "setup": setup,
}


@contextlib.contextmanager
def _alone(place: Place) -> Iterator[None]:
    """One command per engine at a time."""
    place.home.mkdir(parents=True, exist_ok=True)
    with place.lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EngineError(
                f"another command is using the engine on port {place.port}. Wait until it has ended"
            ) from None
        yield


def _check(job: Job) -> None:
    """Find errors before an engine is started, where that is possible. Raises ConfigError or EngineError."""
    if job.app.config is not None:
        load_config(job.app.config)
    if job.app.made is not None and job.app.made.is_dir():
        _refuse_several_environments(job, job.app.made)


def _run_tool(job: Job, command: str, *more: str) -> int:
    """Run a command of cdk-hyperpod against this engine, and return its exit code; 0 for an app without a cluster file."""
    if job.app.config is None:
        return 0
    config = load_config(job.app.config).config
    account = config.account or environment.ACCOUNT
    done = subprocess.run(
        [str(Path(sys.executable).with_name("cdk-hyperpod")), command, "--config", str(job.app.config), *more],
        env=environment.complete(job.place, region=config.region, account=account),
        check=False,
    )
    return done.returncode


def _start(job: Job) -> None:
    installation.ensure(_say)
    began = time.monotonic()
    started = daemon.start(job.place, speed=job.speed)
    how = f"started in {time.monotonic() - began:.1f} s" if started else "was already running"
    _say(f"engine on {job.place.url}: {how}")


def _require_running(place: Place) -> None:
    if daemon.running(place) is None:
        raise EngineError(
            f"no engine is running on port {place.port}. Start one with `{spelling.command('deploy', place)}`"
        )


def _synthesize(job: Job, assembly: Path) -> Path:
    """Synthesize into this path, or return the deployed assembly if the app still makes the same one."""
    _say(str(job.app))
    # Into a separate folder first: if the new app is wrong, `destroy` still needs the deployed assembly.
    fresh = assembly.with_name(f"{assembly.name}.new")
    try:
        if _is_unchanged(job, fresh):
            return job.assembly
        made = _synth(job, fresh, validate=True)
        # Before the new assembly replaces the deployed one, and before a look-up in a second account is the reason.
        if (fresh / "manifest.json").exists():
            _refuse_several_environments(job, fresh)
        _require_success(made, f"{job.app} failed")
        shutil.rmtree(assembly, ignore_errors=True)
        fresh.rename(assembly)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    _digest_file(assembly).write_text(job.app.digest(), "utf-8")
    return assembly


def _is_unchanged(job: Job, fresh: Path) -> bool:
    """Whether the app still makes the deployed assembly, which CDK has checked. CDK's checks take more than half of a synthesis.

    If the app's file has changed, this is False without a synthesis.
    """
    digest = _digest_file(job.assembly)
    if not (job.assembly.exists() and digest.exists()):
        return False
    if digest.read_text("utf-8") != job.app.digest():
        return False
    return _synth(job, fresh, validate=False).ok and are_equal(fresh, job.assembly)


def _digest_file(assembly: Path) -> Path:
    """The file beside an assembly with the digest of its cluster file or template."""
    return assembly.with_name(f"{assembly.name}.made-of")


def _synth(job: Job, folder: Path, *, validate: bool) -> Result:
    shutil.rmtree(folder, ignore_errors=True)
    cdk = Cdk(place=job.place, region=_ANY_REGION, account=_account_of_last_time(job))
    return job.app.synthesize(cdk, folder, validate=validate)


def _account_of_last_time(job: Job) -> str:
    """The account to which the app was deployed: what it looks up is there. The engine's own account for a new app."""
    deployed = stacks(job.assembly) if job.assembly.exists() else ()
    return deployed[0].account if deployed else environment.ACCOUNT


def _stacks(job: Job, assembly: Path) -> tuple[Stack, ...]:
    found = stacks(assembly)
    if not found:
        raise EngineError(f"{job.app}: the app has no stack. Add one, or choose another app with --app")
    return found


def _refuse_several_environments(job: Job, assembly: Path) -> None:
    """Raise EngineError if stacks have different accounts or regions: the bootstrap and the credentials are for one."""
    found = stacks(assembly)
    if len({(stack.account, stack.region) for stack in found}) > 1:
        where = ", ".join(f"{stack.name} in aws://{stack.account}/{stack.region}" for stack in found)
        raise EngineError(
            f"{job.app}: the stacks have several accounts or regions: {where}. A rehearsal supports one. Let the app make the "
            "stacks of one account and region, with context that it reads (-c KEY=VALUE) or another command (--app)"
        )


def _ended(aws: LocalAws) -> list[Json]:
    """Every node of a HyperPod cluster that was terminated so far."""
    found: list[Json] = aws.hyperpod()["terminations"]
    return found


def _is_bootstrapped(aws: LocalAws) -> bool:
    client = aws.client("cloudformation")
    try:
        (stack,) = client.describe_stacks(StackName="CDKToolkit")["Stacks"]
    except client.exceptions.ClientError:
        return False
    return bool(stack["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE"))


def _clear_failed_first(aws: LocalAws, found: tuple[Stack, ...]) -> None:
    """Turn termination protection off for a stack whose first deployment failed. As on AWS, the CLI cannot delete it otherwise."""
    client = aws.client("cloudformation")
    live = {stack["StackName"]: stack for stack in client.describe_stacks()["Stacks"]}
    for stack in found:
        known = live.get(stack.name, {})
        if known.get("StackStatus") == "ROLLBACK_COMPLETE" and known.get("EnableTerminationProtection"):
            _say(
                f"{stack.name}: the first deployment failed. Termination protection is turned off, so that it can be created again"
            )
            client.update_termination_protection(StackName=stack.name, EnableTerminationProtection=False)


def destroy_assembly(place: Place, assembly: Path) -> None:
    """Delete the assembly's stacks, with their termination protection. Raises EngineError with the reason if that fails."""
    found = stacks(assembly)
    if not found:
        return
    aws = LocalAws(place=place, region=found[0].region, account=found[0].account)
    live = _live(aws, found)
    if not live:
        return
    _unprotect(aws, live)
    ids = {name: stack["StackId"] for name, stack in live.items()}
    _destroy_stacks(aws, found, ids, assembly)
    kept = report.kept(aws, list(ids.values()))
    if kept:
        tables.say("", "The app retains these resources. On AWS they would still exist, and some cost money:")
        tables.say(*kept.splitlines())


def _live(aws: LocalAws, found: Sequence[Stack]) -> dict[str, Json]:
    """Those of the stacks that exist, by name, as CloudFormation describes them. The last deployed comes first."""
    pages = aws.client("cloudformation").get_paginator("describe_stacks").paginate()
    known = {stack["StackName"]: stack for page in pages for stack in page["Stacks"]}
    return {stack.name: known[stack.name] for stack in reversed(found) if stack.name in known}


def _unprotect(aws: LocalAws, live: Mapping[str, Json]) -> None:
    """On AWS, a person turns the termination protection off. Here `destroy` is explicit enough."""
    protected = [name for name, stack in live.items() if stack.get("EnableTerminationProtection")]
    for name in protected:
        aws.client("cloudformation").update_termination_protection(StackName=name, EnableTerminationProtection=False)
    tables.say(*removal.refused_by_aws(protected))


def _destroy_stacks(aws: LocalAws, found: Sequence[Stack], ids: Mapping[str, str], assembly: Path) -> None:
    """`cdk destroy`, with its output in a log. Raises EngineError with the reason if it fails, after the ways out."""
    log = aws.place.destroy_log
    _say(f"cdk destroy --all; its output goes to {_short(log)}")
    cdk = Cdk(place=aws.place, region=aws.region, account=aws.account, log=log)
    began = datetime.now(UTC)
    with Progress(aws.client("cloudformation"), list(ids), ids=ids):
        result = cdk.destroy(assembly)
    if result.ok:
        return
    _require_engine(aws.place)
    tables.say("", failure.logs(_short(log), _short(aws.place.log)), *removal.ways_out(aws.place).splitlines())
    raise EngineError(failure.reason(aws, found, began, result.output))


def _require_engine(place: Place) -> None:
    """Raise EngineError if the engine has ended while the CDK CLI used it."""
    if daemon.running(place) is None:
        raise EngineError(f"the engine has ended, and its log is {_short(place.log)}. Run the command again")


def _require_success(result: Result, what: str) -> None:
    if not result.ok:
        raise EngineError(f"{what} ({result.code}):\n{result.output.strip()}")


def _say(text: str) -> None:
    tables.say(f"· {text}")


def _short(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
