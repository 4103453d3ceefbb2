"""What `--app` may be, and the cloud assembly that a template becomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdk_hyperpod_local import apps, assemblies
from cdk_hyperpod_local.cdk import Cdk, Result
from cdk_hyperpod_local.errors import EngineError
from cdk_hyperpod_local.places import Place
from helpers.synthesis import ROOT

TEMPLATE = """\
AWSTemplateFormatVersion: 2010-09-09
Parameters: {Count: {Type: Number, Default: 2}}
Conditions: {IsLarge: !Not [!Equals [!Ref Count, 1]]}
Resources:
  Cluster:
    Type: AWS::SageMaker::Cluster
    Condition: IsLarge
    Properties:
      InstanceGroups:
        - InstanceCount: !Ref Count
          ExecutionRole: !GetAtt Role.Arn
          LifeCycleConfig: {SourceS3Uri: !Sub "s3://${Bucket}/a", OnCreate: !If [IsLarge, a.sh, !Join ["", [b, .sh]]]}
      SubnetId: !Select [0, !Split [",", !ImportValue {"Fn::Sub": "${AWS::Region}-subnets"}]]
"""
CLUSTER = (ROOT / "cluster.yaml").read_text("utf-8")


def find(folder: Path, given: str | None = None, **more: str) -> apps.App:
    context = tuple(f"{name}={value}" for name, value in more.items())
    return apps.find(given, folder=folder, context=context, config=None)


def assembly_of(app: apps.App, folder: Path) -> Path:
    cdk = Cdk(place=Place(4999, home=folder / "home"), region="us-east-1")
    assert app.synthesize(cdk, folder / "assembly", validate=True).ok
    return folder / "assembly"


def test_a_template_becomes_a_stack_of_its_name_in_the_long_form(tmp_path: Path) -> None:
    (tmp_path / "My cluster.template.yaml").write_text(TEMPLATE)
    assembly = assembly_of(find(tmp_path, "My cluster.template.yaml"), tmp_path)
    (stack,) = assemblies.stacks(assembly)
    assert (stack.name, stack.account, stack.region) == ("My-cluster", "000000000000", "us-east-1")
    template = json.loads(stack.template.read_text())
    assert template["AWSTemplateFormatVersion"] == "2010-09-09", "a date is text"
    assert template["Conditions"] == {"IsLarge": {"Fn::Not": [{"Fn::Equals": [{"Ref": "Count"}, 1]}]}}
    cluster = template["Resources"]["Cluster"]
    (group,) = cluster["Properties"]["InstanceGroups"]
    assert cluster["Condition"] == "IsLarge"
    assert group["InstanceCount"] == {"Ref": "Count"}
    assert group["ExecutionRole"] == {"Fn::GetAtt": ["Role", "Arn"]}
    assert group["LifeCycleConfig"] == {
        "SourceS3Uri": {"Fn::Sub": "s3://${Bucket}/a"},
        "OnCreate": {"Fn::If": ["IsLarge", "a.sh", {"Fn::Join": ["", ["b", ".sh"]]}]},
    }
    subnets = {"Fn::Split": [",", {"Fn::ImportValue": {"Fn::Sub": "${AWS::Region}-subnets"}}]}
    assert cluster["Properties"]["SubnetId"] == {"Fn::Select": [0, subnets]}


def test_a_template_in_json_and_an_assembly_stay_as_they_are(tmp_path: Path) -> None:
    given = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}
    (tmp_path / "1.json").write_text(json.dumps(given, indent="\t"))
    made = assembly_of(find(tmp_path, "1.json"), tmp_path)
    (stack,) = assemblies.stacks(made)
    assert stack.name == "stack-1" and json.loads(stack.template.read_text()) == given
    again = find(tmp_path, "assembly").synthesize(
        Cdk(place=Place(4999), region="us-east-1"), tmp_path / "b", validate=True
    )
    assert again.ok and assemblies.are_equal(made, tmp_path / "b")


@pytest.mark.parametrize(
    ("content", "problem"),
    [("- 1\n", "has no Resources"), ("Resources: [\n", "is not valid"), ('{"Resources"', "is not valid")],
)
def test_an_invalid_template_is_reported_in_one_line(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "a.yaml").write_text(content)
    with pytest.raises(EngineError, match=problem) as caught:
        assembly_of(find(tmp_path, "a.yaml"), tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "there is no cdk.json"),
        ("missing.yaml", "there is no such template"),
        ("empty", "neither a cdk.json nor"),
    ],
)
def test_a_missing_app_is_refused(tmp_path: Path, given: str | None, problem: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineError, match=problem):
        find(tmp_path, given)


@pytest.mark.parametrize("given", ["nothere", "../nothere", "./nothere/"])
def test_one_word_that_cannot_be_run_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(EngineError, match=f"^--app {given}: there is no such folder or file in "):
        find(tmp_path, given)


def test_one_word_can_be_a_program(tmp_path: Path) -> None:
    (tmp_path / "app.js").write_text("")
    (tmp_path / "synth.sh").write_text("")
    with pytest.raises(EngineError, match=r"^--app ./synth.sh: is neither an executable program .*chmod"):
        find(tmp_path, "./synth.sh")
    (tmp_path / "synth.sh").chmod(0o755)
    with pytest.raises(EngineError, match=r"^--app synth.sh: .* Write --app ./synth.sh$"):
        find(tmp_path, "synth.sh")
    assert find(tmp_path, "app.js").command == "app.js", "the CLI runs it with Node.js"
    assert [find(tmp_path, given).command for given in ("./synth.sh", "sh", "$APP")] == ["./synth.sh", "sh", "$APP"]


def test_a_command_runs_in_this_folder_and_an_app_s_own_command_in_its_folder(tmp_path: Path) -> None:
    command = find(tmp_path, "npx ts-node bin/app.ts")
    assert (command.command, command.folder, command.config) == ("npx ts-node bin/app.ts", tmp_path, None)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cdk.json").write_text('{"app": "node app.js"}')
    other = find(tmp_path, "other")
    assert (other.command, other.folder, other.config) == (None, tmp_path / "other", None)
    assert other.key != command.key


def test_the_cluster_file_is_known_if_the_app_reads_one(tmp_path: Path) -> None:
    (tmp_path / "cdk.json").write_text('{"app": "python app.py", "context": {"config": "cluster.yaml"}}')
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "other.yaml").write_text(CLUSTER)
    (tmp_path / "theirs.yaml").write_text("instances: 3\ntheir: {instance_groups: []}\n")
    known = find(tmp_path)
    assert known.config == tmp_path / "cluster.yaml" and known.context == (f"config={known.config}",)
    assert find(tmp_path, config="other.yaml").config == tmp_path / "other.yaml"
    assert find(tmp_path, config="theirs.yaml").config is None, "it is not a cluster file"
    assert find(tmp_path, config="missing.yaml").config is None, "the app reports it"
    named = apps.find(None, folder=tmp_path, context=(), config=tmp_path / "cluster.yaml")
    assert named.key == known.key
    for wrong in ("min_count: 1\ninstance_groups: []\n", "instance_groups:\n\t- 1\n", "{instance_groups: }"):
        (tmp_path / "cluster.yaml").write_text(wrong)
        assert find(tmp_path).config == tmp_path / "cluster.yaml", "an invalid cluster file is still one"


@pytest.mark.parametrize("before", [None, b'{"their": "own"}'])
def test_lookups_of_the_cli_do_not_stay_in_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    (tmp_path / "cdk.json").write_text('{"app": "node app.js"}')
    looked_up = tmp_path / "cdk.context.json"
    if before is not None:
        looked_up.write_bytes(before)

    def synth(self: Cdk, assembly: Path, *options: str, app: Path, validate: bool) -> Result:
        (app / "cdk.context.json").write_text('{"availability-zones:account=111122223333:region=us-west-2": ["x"]}')
        return Result(code=0, output="", seconds=0)

    monkeypatch.setattr(Cdk, "synth", synth)
    find(tmp_path).synthesize(Cdk(place=Place(4999), region="us-east-1"), tmp_path / "out", validate=True)
    assert (looked_up.read_bytes() if looked_up.exists() else None) == before


def write_manifest(assembly: Path, *accounts: str, stage: str | None = None) -> None:
    """An assembly that misses a look-up in each account. `stage`: of a Stage in it."""
    missing = [{"key": account, "props": {"account": account, "region": "us-west-2"}} for account in accounts]
    nested = {"type": "cdk:cloud-assembly", "properties": {"directoryName": "stage"}}
    artifacts = {"stage": nested} if stage else {}
    assembly.mkdir(parents=True, exist_ok=True)
    (assembly / "manifest.json").write_text(json.dumps({"artifacts": artifacts, "missing": missing}), "utf-8")
    if stage:
        write_manifest(assembly / "stage", stage)


@pytest.mark.parametrize(
    ("missing", "stage", "ran_as"),
    [
        ([], None, ["000000000000"]),
        (["000000000000"], None, ["000000000000"]),
        (["111122223333"], None, ["000000000000", "111122223333"]),
        ([], "111122223333", ["000000000000", "111122223333"]),
        (["111122223333"], "444455556666", ["000000000000"]),
    ],
    ids=["none", "own", "another", "of a Stage", "several"],
)
def test_look_ups_in_another_account_are_made_with_its_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: list[str], stage: str | None, ran_as: list[str]
) -> None:
    (tmp_path / "cdk.json").write_text('{"app": "python app.py"}')
    accounts: list[str] = []

    def synth(self: Cdk, assembly: Path, *options: str, app: Path, validate: bool) -> Result:
        assert not assembly.exists()
        accounts.append(self.account)
        write_manifest(assembly, *missing, stage=stage)
        return Result(code=int(len(accounts) < 2), output="", seconds=0)

    monkeypatch.setattr(Cdk, "synth", synth)
    cdk = Cdk(place=Place(4999, home=tmp_path / "home"), region="us-east-1")
    made = find(tmp_path).synthesize(cdk, tmp_path / "assembly", validate=True)
    assert accounts == ran_as and made.ok == (len(ran_as) == 2)
