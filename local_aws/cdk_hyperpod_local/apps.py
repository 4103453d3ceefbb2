"""What is rehearsed: a CDK app, a cloud assembly, or a CloudFormation template. All end as a cloud assembly."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cdk_hyperpod_local.cdk import Cdk, Result
from cdk_hyperpod_local.errors import EngineError

Json = Any
_TEMPLATE_ENDINGS = (".json", ".template", ".yaml", ".yml")
_OF_A_SHELL = re.compile(r"[\s;&|<>()$`\"'*=~]")
"""In a command that is more than the name of a program."""
_GROUPS = re.compile(r"^instance_groups[ \t]*:", re.MULTILINE)
"""In a cluster file that is no YAML yet."""
_ASSEMBLY_VERSION = "36.0.0"
"""Of the manifest: any CLI reads one that is older than itself."""


@dataclass(frozen=True, kw_only=True)
class App:
    """`folder`: where its command runs. `context`: as of `cdk -c`. `config`: its cluster file, where it reads one."""

    folder: Path
    given: str = ""
    """As it was typed; empty: not at all."""
    command: str | None = None
    """As in cdk.json; absent: the folder's cdk.json has it."""
    made: Path | None = None
    """A template or a cloud assembly, in place of a command."""
    context: tuple[str, ...] = ()
    config: Path | None = None

    @property
    def name(self) -> str:
        """Tells its assembly from others', for people."""
        named = self.config or self.made or self.folder
        return re.sub(r"[^A-Za-z0-9]+", "-", named.stem).strip("-") or "app"

    @property
    def key(self) -> str:
        """Two apps, or two cluster files of one, that are deployed side by side keep their assemblies apart."""
        parts = (self.folder, self.command, self.made, self.config, *self.context)
        return f"{self.name}-{hashlib.sha256(chr(0).join(map(str, parts)).encode()).hexdigest()[:8]}"

    def __str__(self) -> str:
        """What is done to synthesize it."""
        if self.made is not None:
            return f"reading {self.made}"
        command = [f"--app {self.command!r}"] if self.command else []
        return " ".join(["cdk synth", *command, *(f"-c {item}" for item in self.context)])

    def digest(self) -> str:
        """Of its cluster file or template; empty where it has neither."""
        file = self.config or self.made
        return hashlib.sha256(file.read_bytes()).hexdigest() if file and file.is_file() else ""

    def refuse_read_only(self) -> None:
        """The CLI writes what it looks up into the app's folder. Raises EngineError where it cannot."""
        looked_up = self.folder / "cdk.context.json"
        if self.made is None and not all(
            os.access(path, os.W_OK) for path in (self.folder, looked_up) if path.exists()
        ):
            raise EngineError(
                f"the app's folder {self.folder} cannot be written, where the CDK CLI keeps cdk.context.json for as long as it "
                "synthesizes; copy the app to a folder of yours, or name what it synthesized: --app cdk.out"
            )

    def synthesize(self, cdk: Cdk, assembly: Path, *, validate: bool) -> Result:
        """Make a cloud assembly. `validate`: with CDK's own checks of the templates, which take longer than making them."""
        if self.made is None:
            command = ["--app", self.command] if self.command else []
            options = [word for item in self.context for word in ("-c", item)]
            with _kept(self.folder / "cdk.context.json"):
                return cdk.synth(assembly, *command, *options, app=self.folder, validate=validate)
        if self.made.is_dir():
            shutil.copytree(self.made, assembly)
        else:
            _write_assembly(assembly, _stack_name(self.made), _read_template(self.made))
        return Result(code=0, output="", seconds=0)


def find(given: str | None, *, folder: Path, context: tuple[str, ...], config: Path | None) -> App:
    """The app that `--app` means; absent: that of the folder's cdk.json. Raises EngineError.

    `config` is passed on as the context `config`, as `app.py` of this project and of `cdk-hyperpod init` read it.
    """
    path = folder / given if given else folder
    if not given or (path / "cdk.json").is_file():
        if not (path / "cdk.json").is_file():
            raise EngineError(
                f"there is no cdk.json in {folder}: go to an app's folder, or name one with --app: a folder, "
                "a command that synthesizes (as in cdk.json), a cloud assembly (cdk.out) or a CloudFormation template"
            )
        return _cdk_app(path.resolve(), given or "", None, context, config)
    if (path.is_file() and path.suffix in _TEMPLATE_ENDINGS) or (path / "manifest.json").is_file():
        return App(folder=folder, given=given, made=path.resolve())
    if path.is_dir() or given.endswith(_TEMPLATE_ENDINGS):
        raise EngineError(f"--app {given}: there is no template, and neither a cdk.json nor a manifest.json in it")
    _refuse_no_command(given, folder)
    return _cdk_app(folder, given, given, context, config)


def _refuse_no_command(given: str, folder: Path) -> None:
    """One word that nothing can run is a slip of the pen: it is said before anything is set up. Raises EngineError."""
    file = folder / given
    if _OF_A_SHELL.search(given) or shutil.which(given):
        return
    if file.is_file():
        is_program = os.access(file, os.X_OK)
        # The CLI runs such a one by Node.js.
        if file.suffix == ".js" or (is_program and "/" in given):
            return
        if is_program:
            raise EngineError(f"--app {given}: a shell looks for it on the PATH alone; write --app ./{given}")
        raise EngineError(
            f"--app {given}: is neither a program (chmod +x makes a script one) nor a CloudFormation template "
            f"({', '.join(_TEMPLATE_ENDINGS)}); name what runs it too, as in --app 'python {given}'"
        )
    raise EngineError(
        f"--app {given}: there is no such folder or file in {folder}, and no such program on the PATH; name a folder with a "
        "cdk.json, a command that synthesizes (as in cdk.json), a cloud assembly (cdk.out) or a CloudFormation template"
    )


def _cdk_app(folder: Path, given: str, command: str | None, context: tuple[str, ...], config: Path | None) -> App:
    config = config or _config_of(folder, context)
    if config is not None:
        # An app finds a relative one from its own folder, its user from theirs.
        context = (*(item for item in context if not item.startswith("config=")), f"config={config}")
    return App(folder=folder, given=given, command=command, context=context, config=config)


def _config_of(folder: Path, context: tuple[str, ...]) -> Path | None:
    """The cluster file that the context `config` names, right or wrong; another app's file of that name is its own affair."""
    named = [item.removeprefix("config=") for item in context if item.startswith("config=")]
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        named.insert(0, json.loads((folder / "cdk.json").read_text("utf-8"))["context"]["config"])
    if not named or not isinstance(named[-1], str):
        return None
    return folder / named[-1] if _is_cluster_file(folder / named[-1]) else None


def _is_cluster_file(file: Path) -> bool:
    """Whether it has instance groups, which every cluster file has, and no other file is likely to."""
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError):
        return False
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return _GROUPS.search(text) is not None
    return isinstance(content, dict) and "instance_groups" in content


@contextlib.contextmanager
def _kept(file: Path) -> Iterator[None]:
    """What the CLI looked up here is no answer of the app's own account: its cdk.context.json stays as it was."""
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
    """JSON or YAML with CloudFormation's short forms, in the long form that the CLI needs. Raises EngineError."""
    try:
        # JSON with tabs is no YAML, so it is tried first.
        text = path.read_text("utf-8")
        template = json.loads(text) if text.lstrip().startswith("{") else _TemplateLoader(text).get_single_data()
    except (ValueError, yaml.YAMLError) as error:
        raise EngineError(f"{path}: cannot be read as JSON or YAML: {' '.join(str(error).split())}") from None
    if not isinstance(template, dict) or not isinstance(template.get("Resources"), dict):
        raise EngineError(f"{path}: has no Resources, so it is no CloudFormation template")
    return template


class _TemplateLoader(yaml.SafeLoader):
    """YAML as CloudFormation reads it: `!GetAtt a.b` for `Fn::GetAtt: [a, b]`, and dates are text."""


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
