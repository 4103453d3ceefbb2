"""The user's own scripts in a template: what is uploaded, under which prefix, and for which group."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_cdk import RemovalPolicy, Stack

from cdk_hyperpod import (
    HyperPodCluster,
    HyperPodNetwork,
    InstanceGroup,
    LifecycleScripts,
    encryption_key,
    load_config,
)
from cdk_hyperpod._lambda.hyperpod.uploader.content import KIND
from cdk_hyperpod.config import LifecycleConfig
from cdk_hyperpod.errors import ConfigError
from helpers.findings import Found, found, refused
from helpers.synthesis import ROOT, Json, folder_of, new_app, of_stack, templates_in
from helpers.validating import changed
from stacks import add_stacks

CONTROLLER = InstanceGroup(name="head", node_type="controller", instance_type="ml.m5.large", instance_count=1)
FOR_ALL = {"lifecycle.scripts_before": "first", "lifecycle.scripts_after": "last"}
FOR_WORK = {"instance_groups.1.scripts_after": "work"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a cluster file, with three folders of scripts."""
    for name in ("first", "last", "work"):
        script(tmp_path / name / "10-agent.sh", f"#!/bin/bash\necho {name}\n")
    return tmp_path


def script(file: Path, text: str = "#!/bin/bash\n", mode: int = 0o755) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8", newline="")
    file.chmod(mode)


def assembly(folder: Path, settings: Mapping[str, object]) -> Path:
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(changed(settings)))
    app = new_app()
    add_stacks(app, load_config(file))
    return folder_of(app)


def prefixes(made: Path) -> dict[str, str]:
    """The prefix of each group's scripts."""
    groups = templates_in(made)["hyperpod-small-cluster"].groups()
    return {
        name: json.dumps(group["LifeCycleConfig"]["SourceS3Uri"]).split("/lifecycle/")[1][:64]
        for name, group in groups.items()
    }


def uploads(made: Path) -> dict[str, Json]:
    foundation = templates_in(made)["hyperpod-small-foundation"]
    return {upload["Hash"]: upload for upload in foundation.properties(KIND)}


def test_scripts_of_a_group_change_no_other_group(folder: Path) -> None:
    plain = prefixes(assembly(folder, {}))
    made = assembly(folder, FOR_WORK)
    assert prefixes(made)["head"] == plain["head"]
    assert prefixes(made)["work"] != plain["work"]
    assert set(uploads(made)) == set(prefixes(made).values())
    script(folder / "work/10-agent.sh", "#!/bin/bash\necho changed\n")
    assert prefixes(assembly(folder, FOR_WORK))["head"] == plain["head"]


def beside(made: Path, prefix: str) -> dict[str, str]:
    """The user's files that are uploaded beside the library's scripts, and their content."""
    folder = made / "cdk-hyperpod-scripts" / prefix
    files = sorted(file for name in ("own", "slurm") for file in (folder / name).rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_text() for file in files}


def test_they_are_uploaded_with_the_library_s_by_their_content(folder: Path) -> None:
    script(folder / "work/conf/agent.toml", "[agent]", mode=0o600)
    script(folder / "work/.git/HEAD", "not uploaded")
    made = assembly(folder, {**FOR_ALL, **FOR_WORK, "lifecycle.script_minutes": 20})
    assert {name: text.split()[-1] for name, text in beside(made, prefixes(made)["work"]).items()} == {
        "own/scripts_before/1/10-agent.sh": "first",
        "own/scripts_after/1/10-agent.sh": "last",
        "own/scripts_after/2/10-agent.sh": "work",
        "own/scripts_after/2/conf/agent.toml": "[agent]",
    }
    # A script that is copied elsewhere with its content has the same prefix.
    before = prefixes(made)
    script(folder / "elsewhere/10-agent.sh", "#!/bin/bash\necho first\n")
    assert (
        prefixes(
            assembly(
                folder, {**FOR_ALL, **FOR_WORK, "lifecycle.script_minutes": 20, "lifecycle.scripts_before": "elsewhere"}
            )
        )
        == before
    )


FOR_SLURM = {
    "slurm": {
        "conf": {
            "slurm": "extra.conf",
            "gres": "gres.conf",
            "cgroup": "cgroup.conf",
            "job_container": "tmp.conf",
            "job_submit": "submit.lua",
        },
        "prolog": "prolog.d",
        "epilog": "epilog.d",
    }
}
SLURM_FILES = {
    "slurm/slurm.conf": "extra.conf",
    "slurm/gres.conf": "gres.conf",
    "slurm/cgroup.conf": "cgroup.conf",
    "slurm/job_container.conf": "tmp.conf",
    "slurm/job_submit.lua": "submit.lua",
    "slurm/prolog.d/10-test": "prolog.d/10-test",
    "slurm/epilog.d/10-test": "epilog.d/10-test",
}
"""The uploaded files, and those of the cluster's folder."""


def test_they_are_uploaded_together_with_slurm_s_files_and_each_file_changes_the_prefix(folder: Path) -> None:
    for name in SLURM_FILES.values():
        script(folder / name, "#!/bin/bash\n" if "/" in name else "# slurm_job_submit slurm_job_modify\n")
    settings = {**FOR_ALL, **FOR_WORK, **FOR_SLURM}
    made = assembly(folder, settings)
    first = prefixes(made)
    own = {"own/scripts_before/1/10-agent.sh", "own/scripts_after/1/10-agent.sh"}
    assert set(beside(made, first["head"])) == {*SLURM_FILES, *own}
    assert set(beside(made, first["work"])) == {*SLURM_FILES, *own, "own/scripts_after/2/10-agent.sh"}
    for prefix in first.values():
        uploaded = made / "cdk-hyperpod-scripts" / prefix
        names = {file.relative_to(uploaded).as_posix() for file in uploaded.rglob("*") if file.is_file()}
        sums = {line.split("  ")[1] for line in (uploaded / "scripts.sha256").read_text().splitlines()}
        assert sums == names - {"cluster.json", "scripts.sha256"}, "nodes verify each file"
    seen = {first["head"]}
    for name in (*SLURM_FILES.values(), "first/10-agent.sh", "last/10-agent.sh"):
        with (folder / name).open("a") as file:
            file.write("# changed\n")
        changed_prefix = prefixes(assembly(folder, settings))["head"]
        assert changed_prefix not in seen, name
        seen.add(changed_prefix)


def test_groups_with_equal_scripts_share_an_upload(folder: Path) -> None:
    made = assembly(folder, {**FOR_WORK, "instance_groups.0.scripts_after": "work"})
    assert len(uploads(made)) == 2  # one without scripts, and theirs
    assert len(set(prefixes(made).values())) == 1


def test_they_are_under_the_statement_that_keeps_others_from_writing_scripts(folder: Path) -> None:
    made = assembly(folder, FOR_WORK)
    foundation = templates_in(made)["hyperpod-small-foundation"]
    policies = [policy["PolicyDocument"]["Statement"] for policy in foundation.properties("AWS::S3::BucketPolicy")]
    (denied,) = [
        each for policy in policies for each in policy if each.get("Sid") == "ScriptsAreWrittenByTheirDeployment"
    ]
    assert "/lifecycle/*" in json.dumps(denied["Resource"])


# -- constructs -------------------------------------------------------------------------------------------------------


def cluster(stack: Stack, groups: list[InstanceGroup], *, bootstrap: bool = False, **lifecycle: Any) -> HyperPodCluster:
    key = encryption_key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
    made = LifecycleScripts(
        stack, "Scripts", cluster_name="train", encryption_key=key, lifecycle=LifecycleConfig(**lifecycle)
    )
    return HyperPodCluster(
        stack,
        "Cluster",
        cluster_name="train",
        network=HyperPodNetwork(stack, "Network", availability_zones=["us-west-2b"]),
        instance_groups=groups,
        encryption_key=key,
        lifecycle_scripts=made,
        lifecycle_mode="bootstrap" if bootstrap else None,
        unguarded=True,
    )


def group(folder: Path) -> InstanceGroup:
    return InstanceGroup(
        name="work",
        node_type="compute",
        partition="p",
        instance_type="ml.c5.large",
        instance_count=1,
        scripts_before=str(folder),
    )


def test_a_group_that_is_added_later_gets_its_scripts_before_its_nodes(folder: Path) -> None:
    template = of_stack(lambda stack: cluster(stack, [CONTROLLER]).add_instance_group(group(folder / "work")))
    (resource,) = template.of("AWS::SageMaker::Cluster").values()
    made = template.of(KIND)
    assert len(made) == 2
    assert set(made) <= set(resource["DependsOn"])
    uris = {name: json.dumps(each["LifeCycleConfig"]) for name, each in template.groups().items()}
    assert uris["head"] != uris["work"]


def test_they_are_refused_where_no_script_of_the_library_runs(folder: Path) -> None:
    first, own = folder / "first", str(ROOT / "lifecycle")
    with refused(("own-scripts-in-bootstrap-mode", "lifecycle_scripts")):
        of_stack(lambda stack: cluster(stack, [CONTROLLER], bootstrap=True, scripts_before=str(first)))
    with refused(("own-scripts-beside-a-folder", "lifecycle.scripts_after")):
        of_stack(lambda stack: cluster(stack, [CONTROLLER], scripts=own, scripts_after=str(first)))
    with refused(("own-scripts-beside-a-folder", "instance_groups[work].scripts_before")):
        of_stack(lambda stack: cluster(stack, [CONTROLLER, group(first)], scripts=own))
    with refused(("own-scripts-not-found", "instance_groups[work].scripts_before")):
        of_stack(lambda stack: cluster(stack, [CONTROLLER, group(folder / "gone")]))


# -- what the file says -----------------------------------------------------------------------------------------------


def problems(folder: Path, settings: Mapping[str, object]) -> Found:
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(changed(settings)))
    try:
        return found(load_config(file).warnings)
    except ConfigError as error:
        return found(error.findings)


BEFORE = "lifecycle.scripts_before"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({BEFORE: "gone"}, [("own-scripts-not-found", BEFORE)]),
        ({BEFORE: "cluster.yaml"}, [("own-scripts-not-found", BEFORE)]),
        ({BEFORE: "first", "lifecycle.mode": "bootstrap"}, [("own-scripts-in-bootstrap-mode", BEFORE)]),
        ({**FOR_WORK, "lifecycle.mode": "bootstrap"}, [("own-scripts-in-bootstrap-mode", "instance_groups[work].scripts_after")]),
        ({BEFORE: "first", "lifecycle.scripts": "first"}, [("scripts-incomplete", "lifecycle.scripts"), ("own-scripts-beside-a-folder", BEFORE)]),
        ({BEFORE: "first", "lifecycle.script_minutes": 0}, [("value-out-of-range", "lifecycle.script_minutes")]),
        ({BEFORE: "first", "lifecycle.on_script_failure": "ignore"}, [("value-not-a-choice", "lifecycle.on_script_failure")]),
        ({BEFORE: ["first"]}, [("value-not-plain", BEFORE)]),
    ],
)  # fmt: skip
def test_settings_that_cannot_be(folder: Path, settings: Mapping[str, object], expected: Found) -> None:
    assert problems(folder, settings) == expected


def link(file: Path) -> None:
    file.symlink_to("/nowhere")


@pytest.mark.parametrize(
    ("spoil", "codes"),
    [
        pytest.param(lambda own: script(own / "20-b.sh", mode=0o644), ["own-script-not-executable"], id="not executable"),
        pytest.param(lambda own: script(own / "20-b.sh", "echo hello\n"), ["own-script-without-interpreter"], id="no interpreter"),
        pytest.param(lambda own: script(own / "20-b.sh", ""), ["own-script-without-interpreter"], id="empty"),
        pytest.param(lambda own: script(own / "20-b.sh", "#!/bin/bash\r\n"), ["own-script-with-crlf"], id="from Windows"),
        pytest.param(lambda own: script(own / "two words"), ["own-script-name-invalid"], id="a space"),
        pytest.param(lambda own: script(own / "data/two\nlines"), ["own-script-name-invalid"], id="a line's end"),
        pytest.param(lambda own: link(own / "20-b.sh"), ["own-script-not-a-file"], id="a broken link"),
        pytest.param(lambda own: (own / "10-agent.sh").unlink(), ["own-scripts-empty"], id="an empty folder"),
        pytest.param(lambda own: script(own / "README.md", "read me", mode=0o644), ["own-script-not-executable", "own-script-without-interpreter"], id="both"),
        pytest.param(lambda own: script(own / "data/README.md", "read me", mode=0o644), [], id="data"),
        pytest.param(lambda own: script(own / ".hidden", "", mode=0o644), [], id="a hidden file"),
        pytest.param(lambda own: script(own / "20-program", "\x7fELF"), [], id="a program"),
    ],
)  # fmt: skip
def test_own_scripts_that_a_node_cannot_run_are_refused(
    folder: Path, spoil: Callable[[Path], None], codes: list[str]
) -> None:
    spoil(folder / "first")
    assert problems(folder, {BEFORE: "first"}) == [(code, BEFORE) for code in codes]


@pytest.mark.parametrize("name", ["first", "first/data", "first/data/agent.conf"])
def test_a_folder_or_file_that_cannot_be_read_is_not_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    script(folder / "first/data/agent.conf", "")
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder / name and access(path, mode))
    assert problems(folder, {BEFORE: "first"}) == [("own-scripts-unreadable", BEFORE)]


def test_a_folder_that_no_upload_can_hold(folder: Path) -> None:
    with (folder / "first/data").open("wb") as file:
        file.truncate(60_000_000)
    (folder / "first/data").rename(folder / "first/10-agent.sh")
    (folder / "first/10-agent.sh").chmod(0o755)
    assert problems(folder, {BEFORE: "first"}) == [
        ("own-script-without-interpreter", BEFORE),
        ("own-scripts-too-large", BEFORE),
    ]
