"""The app to rehearse: a CDK app, a cloud assembly, or a CloudFormation template. Each becomes a cloud assembly."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from cdk_hyperpod_local.assemblies import unanswered
from cdk_hyperpod_local.cdk import Cdk, Result
from cdk_hyperpod_local.errors import EngineError

Json = Any
_TEMPLATE_ENDINGS = (".json", ".template", ".yaml", ".yml")
_SHELL_SYNTAX = re.compile(r"[\s;&|<>()$`\"'*=~]")
"""Found in a command that is more than the name of a program."""
_GROUPS = re.compile(r"^instance_groups[ \t]*:", re.MULTILINE)
"""Recognizes a cluster file that is not valid YAML."""
_ANY_APP = (
    "a folder with a cdk.json, a command that synthesizes (as in cdk.json), a cloud assembly (cdk.out) or a CloudFormation "
    "template"
)
_ASSEMBLY_VERSION = "36.0.0"
"""Version of the manifest. The CLI reads manifests that are older than itself."""


@dataclass(frozen=True, kw_only=True)
class App:
    """`folder`: where the app's command runs. `context`: as with `cdk -c`. `config`: the cluster file, if the app reads one."""

    folder: Path
    given: str = ""
    """The value of --app. Empty: the option was not given."""
    command: str | None = None
    """The command that synthesizes. Absent: the one in the folder's cdk.json."""
    made: Path | None = None
    """A template or a cloud assembly, instead of a command."""
    context: tuple[str, ...] = ()
    config: Path | None = None

    @property
    def name(self) -> str:
        """A readable name for the app's assembly."""
        named = self.config or self.made or self.folder
        return re.sub(r"[^A-Za-z0-9]+", "-", named.stem).strip("-") or "app"

    @property
    def key(self) -> str:
        """The folder name of the app's assembly. It differs for two apps, and for two cluster files of one app."""
        parts = (self.folder, self.command, self.made, self.config, *self.context)
        return f"{self.name}-{hashlib.sha256(chr(0).join(map(str, parts)).encode()).hexdigest()[:8]}"

    def __str__(self) -> str:
        """How the app is synthesized, for messages."""
        if self.made is not None:
            return f"reading {self.made}"
        command = [f"--app {self.command!r}"] if self.command else []
        return " ".join(["cdk synth", *command, *(f"-c {item}" for item in self.context)])

    def digest(self) -> str:
        """The digest of the cluster file or template. Empty if the app has neither."""
        file = self.config or self.made
        return hashlib.sha256(file.read_bytes()).hexdigest() if file and file.is_file() else ""

    def refuse_read_only(self) -> None:
        """Raise EngineError if the CLI cannot write its lookups into the app's folder."""
        looked_up = self.folder / "cdk.context.json"
        if self.made is None and not all(
            os.access(path, os.W_OK) for path in (self.folder, looked_up) if path.exists()
        ):
            raise EngineError(
                f"the app's folder {self.folder} is not writable, and the CDK CLI writes cdk.context.json there during "
                "synthesis. Copy the app to a folder of yours, or use what it has synthesized: --app cdk.out"
            )

    def synthesize(self, cdk: Cdk, assembly: Path, *, validate: bool) -> Result:
        """Make a cloud assembly. `validate`: also run CDK's checks of the templates, which take longer than the synthesis.

        The app runs with the credentials of `cdk`'s account. If it names another one and looks something up there, it
        runs a second time with that account's credentials, as its user would run it.
        """
        if self.made is None:
            command = ["--app", self.command] if self.command else []
            options = [word for item in self.context for word in ("-c", item)]
            with _kept(self.folder / "cdk.context.json"):
                made = cdk.synth(assembly, *command, *options, app=self.folder, validate=validate)
                owner = _account_to_ask(assembly, cdk.account)
                if made.ok or owner is None:
                    return made
                shutil.rmtree(assembly)
                asking = replace(cdk, account=owner)
                return asking.synth(assembly, *command, *options, app=self.folder, validate=validate)
        if self.made.is_dir():
            shutil.copytree(self.made, assembly)
        else:
            _write_assembly(assembly, _stack_name(self.made), _read_template(self.made))
        return Result(code=0, output="", seconds=0)


def find(given: str | None, *, folder: Path, context: tuple[str, ...], config: Path | None) -> App:
    """The app that `--app` names; absent: the app of the folder's cdk.json. Raises EngineError.

    The app gets `config` as the context `config`, which `app.py` of this project and of `cdk-hyperpod init` read.
    """
    if not given:
        if not (folder / "cdk.json").is_file():
            raise EngineError(
                f"{folder}: there is no cdk.json. Go to the folder of an app, or use --app with {_ANY_APP}"
            )
        return _cdk_app(folder.resolve(), "", None, context, config)
    path = folder / given
    if (path / "cdk.json").is_file():
        return _cdk_app(path.resolve(), given, None, context, config)
    if (path / "manifest.json").is_file():
        return App(folder=folder, given=given, made=path.resolve())
    if path.is_dir():
        raise EngineError(f"--app {given}: the folder has neither a cdk.json nor a manifest.json. Use {_ANY_APP}")
    if path.is_file() and path.suffix in _TEMPLATE_ENDINGS:
        return App(folder=folder, given=given, made=path.resolve())
    if given.endswith(_TEMPLATE_ENDINGS):
        raise EngineError(f"--app {given}: there is no such template in {folder}. Check the path")
    _refuse_what_cannot_run(given, folder)
    return _cdk_app(folder, given, given, context, config)


def _refuse_what_cannot_run(given: str, folder: Path) -> None:
    """Raise EngineError for a single word that cannot be run, before anything is set up."""
    if _SHELL_SYNTAX.search(given) or shutil.which(given):
        return
    file = folder / given
    if not file.is_file():
        raise EngineError(
            f"--app {given}: there is no such folder or file in {folder}, and no such program on the PATH. Use {_ANY_APP}"
        )
    if file.suffix == ".js":  # the CLI runs it with Node.js
        return
    if not os.access(file, os.X_OK):
        raise EngineError(
            f"--app {given}: is neither an executable program nor a CloudFormation template "
            f"({', '.join(_TEMPLATE_ENDINGS)}). Run chmod +x, or name the interpreter too: --app 'python {given}'"
        )
    if "/" not in given:
        raise EngineError(f"--app {given}: a shell looks for programs on the PATH only. Write --app ./{given}")


def _cdk_app(folder: Path, given: str, command: str | None, context: tuple[str, ...], config: Path | None) -> App:
    config = config or _config_of(folder, context)
    if config is not None:
        # Absolute, because the app resolves a relative path from its own folder, and the user from theirs.
        context = (*(item for item in context if not item.startswith("config=")), f"config={config}")
    return App(folder=folder, given=given, command=command, context=context, config=config)


def _config_of(folder: Path, context: tuple[str, ...]) -> Path | None:
    """The cluster file, valid or not, that the context `config` names. None if that file is not a cluster file."""
    named = [item.removeprefix("config=") for item in context if item.startswith("config=")]
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        named.insert(0, json.loads((folder / "cdk.json").read_text("utf-8"))["context"]["config"])
    if not named or not isinstance(named[-1], str):
        return None
    return folder / named[-1] if _is_cluster_file(folder / named[-1]) else None


def _is_cluster_file(file: Path) -> bool:
    """Whether the file has instance groups: every cluster file has them, and other files are unlikely to."""
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError):
        return False
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return _GROUPS.search(text) is not None
    return isinstance(content, dict) and "instance_groups" in content


def _account_to_ask(assembly: Path, asked: str) -> str | None:
    """The account of the look-ups that the CLI could not answer. None: there are none, in several accounts, or in `asked`."""
    owners = unanswered(assembly)
    return owners.pop() if len(owners) == 1 and asked not in owners else None


@contextlib.contextmanager
def _kept(file: Path) -> Iterator[None]:
    """Restore cdk.context.json afterwards: what the CLI looks up on the engine is not valid for the app's account."""
    before = file.read_bytes() if file.exists() else None
    try:
        yield
    finally:
        if before is None:
            file.unlink(missing_ok=True)
        elif file.read_bytes() != before:
            file.write_bytes(before)


def _stack_name(template: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "-", template.name.split(".")[0]).strip("-")
    return name if name[:1].isalpha() else f"stack-{name}"


def _write_assembly(folder: Path, stack: str, template: Json) -> None:
    folder.mkdir(parents=True)
    (folder / f"{stack}.template.json").write_text(json.dumps(template, indent=1), "utf-8")
    properties = {"templateFile": f"{stack}.template.json"}
    artifact = {
        "type": "aws:cloudformation:stack",
        "environment": "aws://unknown-account/unknown-region",
        "properties": properties,
    }
    manifest = {"version": _ASSEMBLY_VERSION, "artifacts": {stack: artifact}}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), "utf-8")


def _read_template(path: Path) -> Json:
    """Read JSON, or YAML with CloudFormation's short forms, into the long form that the CLI needs. Raises EngineError."""
    try:
        # JSON with tabs is not valid YAML, so JSON is tried first.
        text = path.read_text("utf-8")
        template = json.loads(text) if text.lstrip().startswith("{") else _TemplateLoader(text).get_single_data()
    except (ValueError, yaml.YAMLError) as error:
        raise EngineError(f"{path}: is not valid JSON or YAML. Correct it: {' '.join(str(error).split())}") from None
    if not isinstance(template, dict) or not isinstance(template.get("Resources"), dict):
        raise EngineError(f"{path}: is not a CloudFormation template, because it has no Resources. Use another file")
    return template


class _TemplateLoader(yaml.SafeLoader):
    """YAML as CloudFormation reads it: `!GetAtt a.b` for `Fn::GetAtt: [a, b]`, and dates stay text."""


_TemplateLoader.yaml_implicit_resolvers = {
    letter: [resolver for resolver in resolvers if resolver[0] != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _long_form(loader: _TemplateLoader, name: str, node: yaml.Node) -> Json:
    value: Json
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
        if name == "GetAtt":
            value = value.split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)
        value = loader.construct_mapping(node, deep=True)
    return {name if name in ("Ref", "Condition") else f"Fn::{name}": value}


_TemplateLoader.add_multi_constructor("!", _long_form)
