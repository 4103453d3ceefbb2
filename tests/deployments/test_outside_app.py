"""An app of somebody else, in an environment that has the wheel and what it needs, and nothing of this checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.synthesis import ROOT, Template, flat, needs, templates_in

APP = ROOT / "tests" / "deployments" / "outside_app"
SUBNETS = ["subnet-0123456789abcdef0", "subnet-0fedcba9876543210"]
FOUND = {
    "vpcId": "vpc-0a1b2c3d4e5f60718",
    "vpcCidrBlock": "10.0.0.0/16",
    "ownerAccountId": "111122223333",
    "availabilityZones": [],
    "subnetGroups": [
        {
            "name": "Private",
            "type": "Private",
            "subnets": [
                {"subnetId": subnet, "availabilityZone": zone, "routeTableId": "rtb-0123456789abcdef0", "cidr": cidr}
                for subnet, zone, cidr in zip(
                    SUBNETS, ["us-west-2a", "us-west-2b"], ["10.0.0.0/18", "10.0.64.0/18"], strict=True
                )
            ],
        }
    ],
}
"""What the CDK CLI would write into cdk.context.json after its look-up."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    hatchling = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(hatchling, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(folder: Path, wheel: Path, locked: Path | None) -> Path:
    """The interpreter of a new environment with the wheel, and the locked packages."""
    uv, made = str(ROOT / ".tools" / "bin" / "uv"), folder / "bin" / "python"
    for command in (
        ["venv", "--quiet", "--offline", "--python", sys.executable, str(folder)],
        *(
            []
            if locked is None
            else [["pip", "sync", "--quiet", "--require-hashes", "--python", str(made), str(locked)]]
        ),
        ["pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(made), str(wheel)],
    ):
        subprocess.run([uv, *command], check=True)
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and its locked dependencies alone."""
    return environment(tmp_path_factory.mktemp("outside") / "venv", wheel, ROOT / "requirements" / "library.lock")


def synthesize(python: Path, outdir: Path, context: dict[str, Any]) -> dict[str, Any]:
    """The manifest of the app's assembly."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(python), str(APP / "app.py")],
        cwd=outdir,
        env={
            **inherited,
            "CDK_OUTDIR": str(outdir),
            "CDK_CONTEXT_JSON": json.dumps({**context, "aws:cdk:disable-asset-staging": True}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    manifest: dict[str, Any] = json.loads((outdir / "manifest.json").read_text("utf-8"))
    return manifest


def test_the_command_line_tool_runs_on_them(python: Path, tmp_path: Path) -> None:
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for arguments in (["--help"], ["nodes", "--help"], ["check", str(ROOT / "cluster.yaml")]):
        command = [str(python.with_name("cdk-hyperpod")), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=inherited, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "") and done.stdout, arguments


@pytest.fixture(scope="module")
def assembly(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Synthesized as the CDK CLI does it: once to learn what is to be looked up, and again with the answer."""
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    keys = {
        missing["key"]
        for folder in ("assembly-Delivery-Beta", "assembly-Delivery-Production")
        for missing in _manifest(synthesize(python, first, {}), first / folder).get("missing", [])
    }
    (key,) = keys
    synthesize(python, second, {key: FOUND})
    assert not _manifest({}, second / "assembly-Delivery-Beta").get("missing")
    return second


def _manifest(_: object, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    return found


@pytest.fixture(scope="module", params=["Beta", "Production"])
def training(assembly: Path, request: pytest.FixtureRequest) -> Template:
    (template,) = templates_in(assembly / f"assembly-Delivery-{request.param}").values()
    return template


def granted(template: Template, action: str) -> set[str]:
    """The roles with an action in a policy of their own."""
    return {
        flat(role)
        for properties in template.properties("AWS::IAM::Policy")
        if action in json.dumps(properties["PolicyDocument"])
        for role in properties["Roles"]
    }


def test_the_library_is_the_wheels(python: Path, tmp_path: Path) -> None:
    code = "import cdk_hyperpod; print(cdk_hyperpod.__file__)"
    done = subprocess.run([str(python), "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).is_relative_to(python.parent.parent)


def test_a_cluster_in_a_looked_up_vpc_is_guarded_with_what_came_late(training: Template) -> None:
    prepare = training.only("Custom::HyperPodScaleDown")
    groups = [json.loads(flat(text)) for text in prepare["Groups"]]
    assert [(group["InstanceGroupName"], group["InstanceCount"]) for group in groups] == [
        ("head", 1),
        ("p5", 4),
        ("login", 1),
    ]
    assert prepare["NodesToDelete"] == ["i-0123456789abcdef0"]
    assert training.only("AWS::SageMaker::Cluster")["VpcConfig"]["Subnets"] == SUBNETS[:1]
    # Tags and Aspects of the whole app came last.
    assert "cost-centre" in flat(prepare["Digest"])
    assert {key["DeletionPolicy"] for key in training.of("AWS::KMS::Key").values()} == {"Retain"}


def test_a_pipeline_deploys_one_cluster_after_the_other(assembly: Path) -> None:
    stages = templates_in(assembly)["Delivery"].only("AWS::CodePipeline::Pipeline")["Stages"]
    deployed = {stage["Name"]: [action["Configuration"] for action in stage["Actions"]] for stage in stages[-2:]}
    assert list(deployed) == ["Beta", "Production"]
    for name, actions in deployed.items():
        assert {action["StackName"] for action in actions} == {f"training-{name.lower()}"}
        assert [action["ActionMode"] for action in actions] == ["CHANGE_SET_REPLACE", "CHANGE_SET_EXECUTE"]


def test_rights_are_those_of_each_node_type(training: Template) -> None:
    roles = {name: flat(group["ExecutionRole"]).split(".")[0] + ">" for name, group in training.groups().items()}
    assert roles["p5"].startswith("<Nodes")
    nodes = set(roles.values())
    assert len(nodes) == 3
    assert granted(training, "s3:PutObject") & nodes == {roles["p5"]}
    assert granted(training, "dynamodb:PutItem") & nodes == {roles["login"]}
    assert nodes <= granted(training, "s3:GetObject*")
    before = needs(training, training.only_id("AWS::SageMaker::Cluster"))
    policies = {
        name
        for name, resource in training.of("AWS::IAM::Policy").items()
        if {flat(role) for role in resource["Properties"]["Roles"]} <= set(roles.values())
    }
    assert policies and policies <= before


def test_a_vpc_and_a_file_system_by_their_attributes(assembly: Path) -> None:
    template = templates_in(assembly)["Research"]
    cluster = template.only("AWS::SageMaker::Cluster")
    assert cluster["NodeRecovery"] == "None", "the Aspect's"
    assert '"NodeRecovery":"None"' in flat(template.only("Custom::HyperPodScaleDown")["Digest"])
    assert template.groups()["p5"]["ExecutionRole"] == "arn:aws:iam::111122223333:role/research-nodes"
    assert "FsxLustreConfig" in json.dumps(template.groups()["p5"])
    manifest = (assembly / "Research.metadata.json").read_text("utf-8")
    assert "CDK may not change the role given for compute" in manifest


def test_a_foreign_cluster_is_guarded_with_groups_that_came_after(assembly: Path) -> None:
    template = templates_in(assembly)["Adopted"]
    (text,) = template.only("Custom::HyperPodScaleDown")["Groups"]
    assert json.loads(text)["InstanceCount"] == 2
    assert template.only("Custom::HyperPodGroupRemoval")["InstanceGroupsToDelete"] == ["old"]


def test_an_app_that_imports_the_cluster_by_attributes_gets_its_events_and_logs(assembly: Path) -> None:
    template = templates_in(assembly)["OnCall"]
    rule = template.only("AWS::Events::Rule")
    assert rule["EventPattern"]["resources"] == ["arn:aws:sagemaker:us-west-2:111122223333:cluster/0123456789ab"]
    assert template.only("AWS::Logs::MetricFilter")["LogGroupName"] == "/aws/sagemaker/Clusters/training/0123456789ab"


def test_pyright_accepts_the_app_and_reports_each_mistake(python: Path, tmp_path: Path) -> None:
    settings = {
        "include": ["app"],
        "typeCheckingMode": "strict",
        # What is let through is wrong: a line without its mistake is one.
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    shutil.copytree(APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    pyright = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", str(python), "--project", str(tmp_path)]
    done = subprocess.run(pyright, cwd=tmp_path, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert [
        f"{each['file']}:{each['range']['start']['line'] + 1}: {each['message']}" for each in told["generalDiagnostics"]
    ] == []
    assert told["summary"]["filesAnalyzed"] == len([*APP.glob("*.py")])


def test_mypy_accepts_the_app_and_reports_each_mistake(wheel: Path, tmp_path: Path) -> None:
    """The wheel among the project's own packages: what mypy knows of CDK, which takes minutes, it has from `make types`."""
    made = environment(tmp_path / "venv", wheel, None)
    (packages,) = made.parent.parent.glob("lib/*/site-packages")
    (packages / "locked.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n", "utf-8")
    for file in sorted(APP.glob("*.py")):
        mypy = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--python-executable",
            str(made),
            "--cache-dir",
            str(ROOT / ".mypy_cache"),
        ]
        done = subprocess.run([*mypy, str(file)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == "Success: no issues found in 1 source file\n", done.stdout + done.stderr
