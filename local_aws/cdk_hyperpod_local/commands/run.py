"""The commands themselves. Each returns the exit code; what goes wrong is said in one line."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdk_hyperpod._lambda.hyperpod.common.text import printable
from cdk_hyperpod.loader import load_config
from cdk_hyperpod_local import daemon, environment, installation, kubectl
from cdk_hyperpod_local.apps import App
from cdk_hyperpod_local.assemblies import Stack, are_equal, stacks
from cdk_hyperpod_local.cdk import Cdk, Result
from cdk_hyperpod_local.commands import report, spelling
from cdk_hyperpod_local.errors import EngineError
from cdk_hyperpod_local.places import Place
from cdk_hyperpod_local.session import LocalAws

Json = Any

# For the synthesis alone, which asks no AWS for anything but zones.
_ANY_REGION = "us-east-1"
_WOULD_GO = 2
"""Exit code of `plan`: nodes or groups would go."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """`app`: None for a command that needs none. `parameters`: of the templates, as of `cdk deploy --parameters`."""

    place: Place
    speed: float
    given: App | None = None
    parameters: tuple[str, ...] = ()

    @property
    def app(self) -> App:
        assert self.given is not None
        return self.given

    @property
    def assembly(self) -> Path:
        """What was deployed of the app."""
        return self.place.assemblies / self.app.key


def deploy(job: Job) -> int:
    _check(job)
    job.app.refuse_read_only()
    with _alone(job.place):
        began = time.monotonic()
        _start(job)
        found = _stacks(job, _synthesize(job, job.assembly))
        where = found[0]
        cdk = Cdk(place=job.place, region=where.region, account=where.account, show=True)
        aws = LocalAws(place=job.place, region=where.region, account=where.account)
        if not _is_bootstrapped(aws):
            _say(f"cdk bootstrap aws://{where.account}/{where.region}")
            quiet = Cdk(place=job.place, region=where.region, account=where.account)
            _need(quiet.bootstrap(), "cdk bootstrap failed")
        _clear_failed_first(aws, found)
        _say(f"cdk deploy --all ({', '.join(stack.name for stack in found)})")
        deploying = int(time.time())
        ended = len(_ended(aws))
        result = cdk.deploy(job.assembly, *(word for item in job.parameters for word in ("--parameters", item)))
        if not result.ok:
            print(flush=True)
            _ask(job, "why", "--since", str(deploying))
            raise EngineError(f"cdk deploy ended with {result.code}: {_where_to_look(job.place)}")
        print()
        if stands := report.summary(aws, found, _ended(aws)[ended:]):
            print(stands)
        print(report.how_to_go_on(job.place, job.app, time.monotonic() - began))
        return 0


def diff(job: Job) -> int:
    _check(job)
    job.app.refuse_read_only()
    with _alone(job.place):
        _start(job)
        assembly = _synthesize(job, job.place.folder / "diff")
        found = _stacks(job, assembly)
        shown = Cdk(place=job.place, region=found[0].region, account=found[0].account, show=True).diff(assembly)
        # Of `plan`, 2 says that something would go; a diff is shown either way.
        return shown.code or (0 if (code := _ask(job, "plan")) == _WOULD_GO else code)


def plan(job: Job) -> int:
    _check(job)
    with _alone(job.place):
        _need_running(job.place)
        if job.app.config is None:
            say = f"`{spelling.command('diff', job.place)}` compares any app"
            raise EngineError(
                f"`plan` compares a cluster file with the live cluster: name the file with --config; {say}"
            )
        return _ask(job, "plan")


def drift(job: Job) -> int:
    with _alone(job.place):
        _need_running(job.place)
        found = _stacks(job, job.assembly if job.assembly.exists() else _synthesize(job, job.assembly))
        return (
            Cdk(place=job.place, region=found[0].region, account=found[0].account, show=True).drift(job.assembly).code
        )


def destroy(job: Job) -> int:
    """Everything that was deployed to this engine, and the engine."""
    with _alone(job.place):
        assemblies = sorted(job.place.assemblies.glob("*/manifest.json"))
        if assemblies:
            _start(job)
        for manifest in assemblies:
            destroy_assembly(job.place, manifest.parent)
        daemon.remove(job.place)
        _say(f"nothing of the engine on port {job.place.port} is left")
        return 0


def shell(job: Job) -> int:
    _need_running(job.place)
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
    _say("a shell whose AWS is this machine; `exit` leaves it")
    # Its code is that of the last command typed there, at which make would call this one failed.
    subprocess.run([os.environ.get("SHELL", "/bin/bash")], env=made, check=False)
    return 0


def status(job: Job) -> int:
    pid = daemon.running(job.place)
    print(f"port {job.place.port}: " + (f"runs as process {pid}" if pid else "does not run"))
    return 0 if pid else 3


def stop(job: Job) -> int:
    """End the process and keep the state: the next command goes on where this one left off."""
    with _alone(job.place):
        ran = daemon.running(job.place)
        daemon.stop(job.place)
    what = "has ended" if ran else "did not run"
    kept = f"; its state stays in {_short(job.place.folder)}" if job.place.folder.exists() else ""
    _say(f"the engine on port {job.place.port} {what}{kept}")
    return 0


def setup(job: Job) -> int:
    """Bring what engines run on, so that the first deployment need not."""
    del job
    _say(f"the local AWS is set up in {_short(installation.ensure(_say).folder)}")
    return 0


COMMANDS: Mapping[str, Callable[[Job], int]] = {
    "deploy": deploy,
    "plan": plan,
    "diff": diff,
    "drift": drift,
    "destroy": destroy,
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
            raise EngineError(f"another command is using the engine on port {place.port}: wait for it") from None
        yield


def _check(job: Job) -> None:
    """What is wrong is said before an engine is started for it, where that can be known. Raises ConfigError or
    EngineError."""
    if job.app.config is not None:
        load_config(job.app.config)
    if job.app.made is not None and job.app.made.is_dir():
        _refuse_several_environments(job, job.app.made)


def _ask(job: Job, question: str, *more: str) -> int:
    """The exit code of the command-line tool, about this engine; 0 for an app without a cluster file."""
    if job.app.config is None:
        return 0
    config = load_config(job.app.config).config
    account = config.account or environment.ACCOUNT
    asked = subprocess.run(
        [str(Path(sys.executable).with_name("cdk-hyperpod")), question, "--config", str(job.app.config), *more],
        env=environment.complete(job.place, region=config.region, account=account),
        check=False,
    )
    return asked.returncode


def _start(job: Job) -> None:
    installation.ensure(_say)
    began = time.monotonic()
    started = daemon.start(job.place, speed=job.speed)
    _say(f"engine on {job.place.url} ({f'{time.monotonic() - began:.1f} s' if started else 'it was running'})")


def _need_running(place: Place) -> None:
    if daemon.running(place) is None:
        raise EngineError(f"no engine runs on port {place.port}: `{spelling.command('deploy', place)}` starts one")


def _synthesize(job: Job, assembly: Path) -> Path:
    """The assembly: a new one at this path, or the one that was deployed, where the file still makes the same."""
    _say(str(job.app))
    # Into a folder of its own first: what was deployed is still needed by `destroy` when the new app is wrong.
    fresh = assembly.with_name(f"{assembly.name}.new")
    try:
        if _is_as_before(job, fresh):
            return job.assembly
        _need(_synth(job, fresh, validate=True), f"{job.app} failed")
        # Before it takes the place of what was deployed.
        _refuse_several_environments(job, fresh)
        shutil.rmtree(assembly, ignore_errors=True)
        fresh.rename(assembly)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    _made_of(assembly).write_text(job.app.digest(), "utf-8")
    return assembly


def _is_as_before(job: Job, fresh: Path) -> bool:
    """Whether the app makes what it made, which CDK has checked: more than half of a synthesis is its checks."""
    known = _made_of(job.assembly)
    if not (job.assembly.exists() and known.exists() and known.read_text("utf-8") == job.app.digest()):
        return False  # nor is it worth a try
    return _synth(job, fresh, validate=False).ok and are_equal(fresh, job.assembly)


def _made_of(assembly: Path) -> Path:
    """Beside an assembly: the digest of its cluster file or template."""
    return assembly.with_name(f"{assembly.name}.made-of")


def _synth(job: Job, folder: Path, *, validate: bool) -> Result:
    shutil.rmtree(folder, ignore_errors=True)
    return job.app.synthesize(Cdk(place=job.place, region=_ANY_REGION), folder, validate=validate)


def _stacks(job: Job, assembly: Path) -> tuple[Stack, ...]:
    found = stacks(assembly)
    if not found:
        raise EngineError(f"{job.app}: there is no stack in it")
    return found


def _refuse_several_environments(job: Job, assembly: Path) -> None:
    """A deployment here has one account and region: its bootstrap, its credentials, and whom it is asked for afterwards."""
    found = stacks(assembly)
    if len({(stack.account, stack.region) for stack in found}) > 1:
        where = ", ".join(f"{stack.name} in aws://{stack.account}/{stack.region}" for stack in found)
        raise EngineError(
            f"{job.app}: a rehearsal has one account and region, and these stacks have several: {where}; let the app make "
            "the stacks of one alone, as by context that it reads (-c KEY=VALUE) or by a command of its own (--app)"
        )


def _ended(aws: LocalAws) -> list[Json]:
    """Every node of a HyperPod cluster that ended so far."""
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
    """A first deployment that failed leaves a protected stack behind, which the CLI may not delete (on AWS neither)."""
    client = aws.client("cloudformation")
    live = {stack["StackName"]: stack for stack in client.describe_stacks()["Stacks"]}
    for stack in found:
        known = live.get(stack.name, {})
        if known.get("StackStatus") == "ROLLBACK_COMPLETE" and known.get("EnableTerminationProtection"):
            _say(f"{stack.name}: its first deployment failed; termination protection off, so that it can start afresh")
            client.update_termination_protection(StackName=stack.name, EnableTerminationProtection=False)


def destroy_assembly(place: Place, assembly: Path) -> None:
    found = stacks(assembly)
    if not found:
        return
    aws = LocalAws(place=place, region=found[0].region, account=found[0].account)
    client = aws.client("cloudformation")
    identifiers = {}
    for stack in found:
        try:
            (live,) = client.describe_stacks(StackName=stack.name)["Stacks"]
        except client.exceptions.ClientError:
            continue
        identifiers[stack.name] = live["StackId"]
        if live.get("EnableTerminationProtection"):
            # On AWS somebody would do this knowingly, in the console; here the command's name says it.
            client.update_termination_protection(StackName=stack.name, EnableTerminationProtection=False)
    if not identifiers:
        return
    _say(f"cdk destroy --all ({', '.join(identifiers)})")
    cdk = Cdk(place=place, region=found[0].region, account=found[0].account, show=True)
    result = cdk.destroy(assembly)
    if not result.ok:
        again = spelling.command("destroy", place)
        raise EngineError(f"cdk destroy ended with {result.code}: {_where_to_look(place)}; `{again}` again after a fix")
    kept = report.kept(aws, list(identifiers.values()))
    if kept:
        print(f"\nOn AWS these would still be there (some cost money), because the app retains them:\n{kept}")


def _need(result: Result, what: str) -> None:
    if not result.ok:
        raise EngineError(f"{what} ({result.code}):\n{result.output.strip()}")


def _where_to_look(place: Place) -> str:
    reason = "the reason is above" if daemon.running(place) else "the engine is gone, run the same again"
    return f"{reason}; the engine's log is {_short(place.log)}"


def _say(text: str) -> None:
    print(f"· {printable(text)}", flush=True)


def _short(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
