"""The wheel: what is in it, and that it makes the same templates as the checkout."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree

import pytest

from cdk_hyperpod_local import daemon
from cdk_hyperpod_local.places import Place
from synth.synthesis import EXAMPLES, ROOT, assembly_of_example, assembly_of_file, template_files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as `make wheel` builds it."""
    folder = tmp_path_factory.mktemp("dist")
    hatchling = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(hatchling, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def contents(wheel: Path) -> dict[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info for info in archive.infolist()}


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh virtual environment with the wheel in it; all else is lent by this environment."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    uv = str(ROOT / ".tools" / "bin" / "uv")
    subprocess.run([uv, "venv", "--quiet", "--offline", "--python", sys.executable, str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, str(wheel)], check=True
    )
    # The .pth files of a folder that a .pth file names are not read, so the editable installation stays out.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shared = folder / "lib" / version / "site-packages" / "shared.pth"
    shared.write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return folder / "bin"


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """What a command prints, run without anything of the checkout in its environment."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**inherited, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    project = {f"cdk_hyperpod/_project/{name}" for name in ("cdk.json", "package.json")}
    assert {name for name in contents if name.startswith("cdk_hyperpod/")} == library | scripts | stacks | project
    assert {"cdk_hyperpod/py.typed", "cdk_hyperpod/instance_types.json"} <= library


def test_the_local_aws_is_in_it_and_is_small(contents: dict[str, zipfile.ZipInfo]) -> None:
    found = {name.partition("/")[2]: info for name, info in contents.items() if name.startswith("cdk_hyperpod_local/")}
    assert found.keys() == shipped(ROOT / "constructs" / "cdk_hyperpod_local") - {"local.mk"}
    assert sum(info.compress_size for info in found.values()) < 1_000_000


def test_the_stacks_and_pins_in_it_are_the_repositorys_own(wheel: Path, contents: dict[str, zipfile.ZipInfo]) -> None:
    places = {f"cdk_hyperpod/stacks/{name}": ROOT / "stacks" / name for name in shipped(ROOT / "stacks")}
    places |= {f"cdk_hyperpod/_project/{name}": ROOT / name for name in ("cdk.json", "package.json")}
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
    code = "import cdk_hyperpod, cdk_hyperpod._assets as a; print(cdk_hyperpod.__file__); print(a.lifecycle_dir())"
    module, scripts = run(environment / "python", "-c", code, cwd=tmp_path).splitlines()
    assert Path(module).is_relative_to(environment.parent)
    assert Path(scripts) == Path(module).parent / "_lifecycle"


def test_the_command_line_tool_is_installed(environment: Path, tmp_path: Path) -> None:
    assert "usage: cdk-hyperpod" in run(environment / "cdk-hyperpod", "--help", cwd=tmp_path)
    assert "llm-train" in run(environment / "cdk-hyperpod", "check", "--config", ROOT / "cluster.yaml", cwd=tmp_path)


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


@pytest.mark.parametrize("name", EXAMPLES)
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


# -- a rehearsal, in a folder outside of the clone --------------------------------------------------------------------

PLAIN = """\
Parameters: {Count: {Type: Number, Default: 3}}
Resources:
  Scripts: {Type: AWS::S3::Bucket}
  Role:
    Type: AWS::IAM::Role
    Properties:
      AssumeRolePolicyDocument:
        Version: 2012-10-17
        Statement: [{Effect: Allow, Principal: {Service: sagemaker.amazonaws.com}, Action: "sts:AssumeRole"}]
  Cluster:
    Type: AWS::SageMaker::Cluster
    Properties:
      ClusterName: plain
      InstanceGroups:
        - InstanceGroupName: workers
          InstanceType: ml.m5.xlarge
          InstanceCount: !Ref Count
          ExecutionRole: !GetAtt Role.Arn
          LifeCycleConfig: {SourceS3Uri: !Sub "s3://${Scripts}/scripts", OnCreate: on_create.sh}
"""


@pytest.fixture
def local(environment: Path, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """local(command, option, …) -> what `cdk-hyperpod local` of the wheel prints in an empty folder; its engine ends."""
    place = Place(daemon.free_port())

    def call(command: str, *options: str, **more: str) -> str:
        tool = environment / "cdk-hyperpod"
        # The environment of the tests names an environment of theirs, and switches CDK's checks off.
        return run(tool, "local", command, f"--port={place.port}", *options, cwd=tmp_path, CDK_VALIDATION="", **more)

    try:
        yield call
    finally:
        daemon.remove(place)


def test_a_new_app_is_rehearsed_from_the_wheel_alone(
    local: Callable[..., str], environment: Path, tmp_path: Path
) -> None:
    run(environment / "cdk-hyperpod", "init", "--name", "new", "--region", "us-west-2", "--yes", cwd=tmp_path)
    assert re.search(
        r"^new +compute +ml\.m5\.xlarge +2 +1 +2 +InService$", local("deploy", "--speed=1200"), re.MULTILINE
    )
    file = tmp_path / "cluster.yaml"
    lowered = re.sub(r"^    instance_count: 2$", "    instance_count: 1", file.read_text("utf-8"), flags=re.MULTILINE)
    file.write_text(lowered, "utf-8")
    (node,) = set(re.findall(r"i-[0-9a-f]{17}", local("plan")))
    after = local("deploy")
    assert re.search(rf"^new +compute +{node} +named by a deletion of nodes$", after, re.MULTILINE)
    assert re.search(r"^new +compute +ml\.m5\.xlarge +1 +1 +1 +InService$", after, re.MULTILINE)
    assert "hyperpod-new-cluster: destroyed" in local("destroy")


def unpack(folder: Path) -> None:
    """CDK for Node, into the folder: npm's own packages, out of the wheels that requirements/dev.lock pins."""
    for package, module in [
        ("aws-cdk-lib", "aws_cdk"),
        ("constructs", "constructs"),
        ("@aws-cdk/cloud-assembly-schema", "aws_cdk/cloud_assembly_schema"),
    ]:
        (archive,) = (Path(sysconfig.get_path("purelib")) / module / "_jsii").glob("*.tgz")
        target = folder / "node_modules" / package
        target.mkdir(parents=True)
        subprocess.run(["tar", "-xzf", archive, "-C", target, "--strip-components=1"], check=True)


def test_a_template_and_an_app_that_are_not_ours_are_rehearsed_from_the_wheel_alone(
    local: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "plain.yaml").write_text(PLAIN, "utf-8")
    app = "--app=plain.yaml"
    assert re.search(
        r"^plain +workers +ml\.m5\.xlarge +3 +- +3 +InService$", local("deploy", app, "--speed=1200"), re.MULTILINE
    )
    after = local("deploy", app, "--parameters=Count=1")
    assert len(re.findall(r"^plain +workers +i-[0-9a-f]{17} +at random: ", after, re.MULTILINE)) == 2
    assert "Number of stacks with differences: 0" in local("diff", app)
    assert [path.name for path in tmp_path.iterdir()] == ["plain.yaml"]

    # In TypeScript, as its cdk.json says.
    copytree(ROOT / "tests" / "typescript_app", tmp_path, dirs_exist_ok=True)
    unpack(tmp_path)
    assert re.search(r"^typescript +workers +ml\.m5\.xlarge +3 +- +3 +InService$", local("deploy"), re.MULTILINE)
    after = local("deploy", "-c", "count=2")
    assert len(re.findall(r"^typescript +workers +i-[0-9a-f]{17} +at random: ", after, re.MULTILINE)) == 1
    destroyed = local("destroy")
    assert "plain: destroyed" in destroyed and "Training: destroyed" in destroyed
