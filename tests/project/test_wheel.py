"""The wheel: what is in it, and that it makes the same templates as the checkout."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import zipfile
from pathlib import Path

import pytest

from cdk_hyperpod._common.assets import drain_protocol
from helpers.from_wheel import run
from helpers.synthesis import EXAMPLES, ROOT, assembly_of_example, assembly_of_file, template_files


@pytest.fixture(scope="module")
def contents(wheel: Path) -> dict[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info for info in archive.infolist()}


def shipped(folder: Path) -> set[str]:
    """The files of a folder of the checkout that belong into the wheel."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def test_the_wheel_holds_the_library_and_nothing_else(contents: dict[str, zipfile.ZipInfo]) -> None:
    own, metadata, local = sorted({name.split("/")[0] for name in contents})
    assert (own, local) == ("cdk_hyperpod", "cdk_hyperpod_local")
    assert metadata.endswith(".dist-info")
    library = {f"cdk_hyperpod/{name}" for name in shipped(ROOT / "constructs" / "cdk_hyperpod")}
    scripts = {f"cdk_hyperpod/_lifecycle/{name}" for name in shipped(ROOT / "lifecycle")}
    # `cdk_hyperpod.stacks` leads to the top-level folder in a checkout, and is that folder in the wheel.
    library.remove("cdk_hyperpod/stacks.py")
    stacks = {f"cdk_hyperpod/stacks/{name}" for name in shipped(ROOT / "stacks")}
    project = {f"cdk_hyperpod/_project/{name}" for name in ("cdk.json", "package.json", "package-lock.json")}
    docs = {f"cdk_hyperpod/docs/{name}" for name in shipped(ROOT / "docs")}
    assert {
        name for name in contents if name.startswith("cdk_hyperpod/")
    } == library | scripts | stacks | project | docs
    assert {"cdk_hyperpod/py.typed", "cdk_hyperpod/facts/instance_types.json"} <= library


def test_the_local_aws_is_in_it_and_is_small(contents: dict[str, zipfile.ZipInfo]) -> None:
    found = {name.partition("/")[2]: info for name, info in contents.items() if name.startswith("cdk_hyperpod_local/")}
    assert found.keys() == shipped(ROOT / "local_aws" / "cdk_hyperpod_local") - {"local.mk"}
    assert sum(info.compress_size for info in found.values()) < 1_000_000


def test_every_page_that_a_file_in_it_names_is_in_it_too(wheel: Path, contents: dict[str, zipfile.ZipInfo]) -> None:
    """A message that names docs/eks.md means a page that whoever reads the message has."""
    with zipfile.ZipFile(wheel) as archive:
        texts = [archive.read(name).decode() for name in contents if name.endswith((".py", ".yaml", ".md"))]
    named = {page for text in texts for page in re.findall(r"(?<![\w/])docs/[\w./-]*\w\.(?:md|json)\b", text)}
    assert {"docs/deploying.md", "docs/eks.md", "docs/adr/0010-a-rollback-at-its-deadline.md"} <= named
    assert {f"cdk_hyperpod/{page}" for page in named} - contents.keys() == set()
    pages = [info for name, info in contents.items() if name.startswith("cdk_hyperpod/docs/")]
    assert sum(info.compress_size for info in pages) < 300_000


def test_the_stacks_and_pins_in_it_are_the_repositorys_own(wheel: Path, contents: dict[str, zipfile.ZipInfo]) -> None:
    places = {f"cdk_hyperpod/stacks/{name}": ROOT / "stacks" / name for name in shipped(ROOT / "stacks")}
    places |= {
        f"cdk_hyperpod/_project/{name}": ROOT / name for name in ("cdk.json", "package.json", "package-lock.json")
    }
    assert len(places) > 6
    with zipfile.ZipFile(wheel) as archive:
        assert {name: archive.read(name) for name in places} == {
            name: path.read_bytes() for name, path in places.items()
        }


def test_the_lifecycle_scripts_are_in_it_and_can_be_run(contents: dict[str, zipfile.ZipInfo]) -> None:
    for name in ("on_create.sh", "controller.sh", "login.sh", "compute.sh", "provision.py"):
        mode = contents[f"cdk_hyperpod/_lifecycle/{name}"].external_attr >> 16
        assert mode & stat.S_IXUSR, name


def test_the_library_comes_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    code = (
        "import cdk_hyperpod, cdk_hyperpod._common.assets as a; print(cdk_hyperpod.__file__); print(a.lifecycle_dir())"
    )
    module, scripts = run(environment / "python", "-c", code, cwd=tmp_path).splitlines()
    assert Path(module).is_relative_to(environment.parent)
    assert Path(scripts) == Path(module).parent / "_lifecycle"


def test_nodes_get_the_drain_protocol_from_the_wheel_too(environment: Path, tmp_path: Path) -> None:
    code = "import sys, pathlib, cdk_hyperpod._common.assets as a; print(a.pack_lifecycle(pathlib.Path(sys.argv[1])))"
    folder = Path(run(environment / "python", "-c", code, tmp_path / "packed", cwd=tmp_path).strip())
    assert (folder / "drain_protocol.py").read_bytes() == drain_protocol().read_bytes()


def test_the_command_line_tool_is_installed(environment: Path, tmp_path: Path) -> None:
    assert "Usage: cdk-hyperpod" in run(environment / "cdk-hyperpod", "--help", cwd=tmp_path)
    assert "llm-train" in run(environment / "cdk-hyperpod", "check", "--config", ROOT / "cluster.yaml", cwd=tmp_path)


def test_the_tool_says_where_the_pages_are(environment: Path, tmp_path: Path) -> None:
    folder = Path(run(environment / "cdk-hyperpod", "docs", cwd=tmp_path).strip())
    assert folder.is_relative_to(environment.parent) and (folder / "delete-nodes.md").is_file()


def test_the_extra_for_eks_brings_the_layer_of_kubectl(environment: Path, tmp_path: Path) -> None:
    """`examples/eks_cluster` below imports it; here is what says to pip that it has to be there."""
    code = "import importlib.metadata as m; print(*m.requires('cdk-hyperpod'), sep='\\n')"
    needed = run(environment / "python", "-c", code, cwd=tmp_path).splitlines()
    (layer,) = [line for line in needed if re.search(r"extra == .eks.", line)]
    assert layer.startswith("aws-cdk-lambda-layer-kubectl-v35")


def test_an_elastic_job_is_rendered(environment: Path, tmp_path: Path) -> None:
    example = ROOT / "examples" / "elastic_training"
    readme = (example / "README.md").read_text("utf-8")
    (documented,) = re.findall(r"^cdk-hyperpod (job render .*?) > job\.yaml$", readme, re.MULTILINE | re.DOTALL)
    rendered = run(environment / "cdk-hyperpod", *shlex.split(documented.replace("\\\n", " ")), cwd=tmp_path)
    assert rendered == (example / "job.yaml").read_text("utf-8")


def synthesize(environment: Path, program: Path, outdir: Path) -> dict[str, str]:
    """The templates of a program that runs in the fresh environment, in its own folder."""
    context = json.loads((program.parent / "cdk.json").read_text("utf-8"))["context"]
    run(
        environment / "python",
        program.name,
        cwd=program.parent,
        CDK_OUTDIR=str(outdir),
        CDK_CONTEXT_JSON=json.dumps({**context, "aws:cdk:disable-asset-staging": True}),
    )
    return template_files(outdir)


@pytest.mark.parametrize(
    "name", [name if name == "eks_cluster" else pytest.param(name, marks=pytest.mark.ci) for name in EXAMPLES]
)
def test_examples_are_the_same_bytes_from_the_wheel(name: str, environment: Path, tmp_path: Path) -> None:
    made = synthesize(environment, ROOT / "examples" / name / "app.py", tmp_path)
    assert made
    assert made == template_files(assembly_of_example(name))


def test_the_app_is_the_same_bytes_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    made = synthesize(environment, ROOT / "app.py", tmp_path)
    assert len(made) == 2
    assert made == template_files(assembly_of_file(ROOT / "cluster.yaml"))


# -- a new app, in a folder outside of the clone ----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["slurm", "eks"])
def new_app(request: pytest.FixtureRequest, environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an app that `init` of the wheel wrote."""
    folder = tmp_path_factory.mktemp("new")
    more = ["--eks"] if request.param == "eks" else []
    run(environment / "cdk-hyperpod", "init", "--name", "new", "--region", "us-west-2", *more, cwd=folder)
    return folder


@pytest.mark.ci
def test_a_new_app_is_the_same_bytes_as_ours_of_its_file(new_app: Path, environment: Path, tmp_path: Path) -> None:
    made = synthesize(environment, new_app / "app.py", tmp_path)
    assert len(made) in (2, 4)
    assert made == template_files(assembly_of_file(new_app / "cluster.yaml"))


def test_the_cli_synthesizes_a_new_app_from_the_wheel_alone(environment: Path, tmp_path: Path) -> None:
    run(environment / "cdk-hyperpod", "init", "--name", "new", "--region", "us-west-2", "--yes", cwd=tmp_path)
    tools = os.pathsep.join([str(environment), str(ROOT / "node_modules" / ".bin"), os.environ["PATH"]])
    run("cdk", "synth", "--quiet", cwd=tmp_path, PATH=tools, CDK_VALIDATION="true")
    assert sorted(template_files(tmp_path / "cdk.out")) == ["hyperpod-new-cluster", "hyperpod-new-foundation"]
    assert template_files(tmp_path / "cdk.out") == template_files(assembly_of_file(tmp_path / "cluster.yaml"))
