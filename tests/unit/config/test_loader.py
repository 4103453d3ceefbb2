"""Reading a file: whatever it holds, the answer is a cluster or a message, never a stack trace."""

from __future__ import annotations

import itertools
import os
import re
import time
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod.errors import ConfigError
from cdk_hyperpod.loader import MAX_FILE_BYTES, load_config
from cdk_hyperpod.typed.yaml_text import MAX_VALUES
from helpers.judging import SMALL, changed, findings_of, judge, load_text, told

EMPTY = (
    "the file is empty; begin with name, region and instance_groups; "
    "`cdk-hyperpod init` writes an example in an empty folder"
)
NO_SETTINGS = "write it as key: value lines"


def yaml_error(text: str, remedy: str = "correct it there") -> str:
    return f"cannot be read as YAML: {text}; {remedy}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", EMPTY, id="empty"),
        pytest.param(" \n\n", EMPTY, id="blank"),
        pytest.param("# name: a\n", EMPTY, id="comments only"),
        pytest.param("---\n# name: a\n", EMPTY, id="comments in a document"),
        pytest.param("---\n...\n", EMPTY, id="an empty document"),
        pytest.param("null\n", EMPTY, id="null"),
        pytest.param("cluster", f"must hold settings, got 'cluster'; {NO_SETTINGS}", id="one word"),
        pytest.param("- name: a\n", f"must hold settings, got [{{'name': 'a'}}]; {NO_SETTINGS}", id="a list"),
        pytest.param(b"\xff\xfen\x00", "byte 0, in line 1, is not UTF-8 text; save the file as UTF-8", id="UTF-16"),
        pytest.param(b"name: caf\xe9\n", "byte 9, in line 1, is not UTF-8 text; save the file as UTF-8", id="Latin-1"),
        pytest.param("name: a\0b\n", yaml_error("the character U+0000 is not allowed in line 1"), id="NUL"),
        pytest.param("name: a\x1b[31m\n", yaml_error("the character U+001B is not allowed in line 1"), id="escape"),
        pytest.param(
            "name: {a\n",
            yaml_error("while parsing a flow mapping, expected ',' or '}', but got '<stream end>' in line 2"),
            id="open bracket",
        ),
        pytest.param(
            "name: a\n\tregion: b\n",
            yaml_error(
                "while scanning for the next token, found character '\\t' that cannot start any token in line 2",
                "indent with spaces, never with tabs",
            ),
            id="tab",
        ),
        pytest.param(
            "name: a\n---\nname: b\n",
            yaml_error("expected a single document in the stream, but found another document in line 2"),
            id="two documents",
        ),
        pytest.param("name: *missing\n", yaml_error("found undefined alias 'missing' in line 1"), id="no such anchor"),
        pytest.param("name: &n [*n]\n", yaml_error("a value that holds itself in line 1"), id="list in itself"),
        pytest.param("name:\n  &n {<<: *n}\n", yaml_error("a value that holds itself in line 2"), id="merge of itself"),
        pytest.param(
            "name: {<<: a}\n",
            yaml_error(
                "while constructing a mapping, expected a mapping or list of mappings for merging, but found scalar in line 1"
            ),
            id="merge of text",
        ),
        pytest.param(
            "? [a]\n: b\n",
            yaml_error("while constructing a mapping, found a key that is not plain text in line 1"),
            id="a list as key",
        ),
        pytest.param(
            "name: !!python/object/apply:os.getcwd []\n",
            yaml_error(
                "only plain values are allowed, and not the tag 'tag:yaml.org,2002:python/object/apply:os.getcwd' in line 1"
            ),
            id="Python object",
        ),
        pytest.param(
            "a: 1\nb: 2024-02-30\n",
            yaml_error("'2024-02-30' is not a valid date, number or truth value in line 2"),
            id="a day that never was",
        ),
        pytest.param(
            "a: !!int ''\n",
            yaml_error("'' is not a valid date, number or truth value in line 1"),
            id="number of nothing",
        ),
        pytest.param(
            "a: !!bool maybe\n",
            yaml_error("'maybe' is not a valid date, number or truth value in line 1"),
            id="neither true nor false",
        ),
        pytest.param(
            "a: !!timestamp soon\n",
            yaml_error("'soon' is not a valid date, number or truth value in line 1"),
            id="no date at all",
        ),
        pytest.param("[" * 100_000, yaml_error("nested too deeply in line 1"), id="nested deeply"),
        pytest.param("a:\n  " + "[" * 60 + "]" * 60, yaml_error("nested too deeply in line 2"), id="nested and closed"),
        pytest.param(
            "a: b\nc: !mine d\n",
            yaml_error("only plain values are allowed, and not the tag '!mine' in line 2"),
            id="a tag of one's own",
        ),
        pytest.param("a: 1\nb: \x07\n", yaml_error("the character U+0007 is not allowed in line 2"), id="bell"),
        pytest.param(
            b"a: 1\nb: \xff\n", "byte 8, in line 2, is not UTF-8 text; save the file as UTF-8", id="one bad byte"
        ),
        pytest.param(
            "x" * (MAX_FILE_BYTES + 1),
            "the file has more than 1,048,576 bytes; name a cluster file, which is smaller",
            id="huge",
        ),
        pytest.param(
            "é" * MAX_FILE_BYTES,
            "the file has more than 1,048,576 bytes; name a cluster file, which is smaller",
            id="huge and cut inside a character",
        ),
        pytest.param(
            "[" + "x," * MAX_VALUES + "]", yaml_error("more than 20,000 values, aliases unfolded, in line 1"), id="many"
        ),
    ],
)
def test_a_file_that_is_no_cluster_file_gets_one_message(text: str | bytes, message: str) -> None:
    (found,) = findings_of(text)
    assert told([found]) == [message]
    if named := re.search(r"\bin line (\d+)", message):
        assert found.line == int(named[1])


@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param("{0}: &{0} [{1}]\n", id="lists"),
        pytest.param("{0}: &{0} {{<<: [{1}]}}\n", id="merges"),
    ],
)
def test_aliases_that_unfold_without_end_are_refused_at_once(bomb: str) -> None:
    names = "abcdefghijkl"
    lines = ["a: &a {x: 1}\n"]
    lines += [bomb.format(name, ", ".join([f"*{before}"] * 9)) for before, name in itertools.pairwise(names)]
    start = time.process_time()

    assert told(findings_of("".join(lines))) == [yaml_error("more than 20,000 values, aliases unfolded, in line 5")]
    assert time.process_time() - start < 5


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "absolute"])
def test_a_file_that_is_not_there(relative: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    looked_at = tmp_path / "no" / "such.yaml"
    name = "no/such.yaml" if relative else str(looked_at)

    with pytest.raises(ConfigError) as caught:
        load_config(name)

    assert str(caught.value) == (
        f"{name}: 1 error\n  there is no file {looked_at}; "
        "give its path (`cdk-hyperpod … --config FILE`, `cdk -c config=FILE`, `make … CONFIG=FILE`), "
        "or let `cdk-hyperpod init` write one"
    )


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)

    assert str(caught.value) == f"{tmp_path}: 1 error\n  the file cannot be read (Is a directory); name a readable file"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        pytest.param("a\0b", "embedded null byte", id="NUL"),
        pytest.param("x" * 5000, "File name too long", id="long"),
        pytest.param("\ud800", "'utf-8' codec can't encode", id="no text"),
        pytest.param("cluster.yaml/x", "Not a directory", id="below a file"),
    ],
)
def test_a_path_that_no_file_can_have(path: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").touch()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError) as caught:
        load_config(path)

    head, line = str(caught.value).split("\n")
    assert line.startswith(f"  the file cannot be read ({reason}") and line.endswith("; name a readable file")
    assert head.isprintable()


def test_a_stream_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero: 1 error\n  the file has more than 1,048,576 bytes;"):
        load_config("/dev/zero")


def test_a_pipe_is_read_like_a_file() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        stream.write(yaml.safe_dump(dict(SMALL)))

    assert load_config(f"/dev/fd/{read}").config.name == "small"
    os.close(read)


def test_a_valid_file_is_a_config_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(changed({"lifecycle": {"scripts": "own"}})))
    scripts = tmp_path / "own"
    scripts.mkdir()
    for name in ("controller.sh", "login.sh", "compute.sh"):
        (scripts / name).touch()

    loaded = load_config(path)

    assert [group.name for group in loaded.config.instance_groups] == ["head", "work"]
    assert loaded.warnings == ()
    assert loaded.lifecycle_scripts == scripts


def test_the_librarys_scripts_are_used_where_the_file_names_none() -> None:
    assert load_text(yaml.safe_dump(dict(SMALL))).lifecycle_scripts is None


def test_windows_files_are_read() -> None:
    text = "\ufeff" + yaml.safe_dump(dict(SMALL)).replace("\n", "\r\n")

    assert load_text(text).config == load_text(yaml.safe_dump(dict(SMALL))).config


def test_anchors_and_merge_keys_may_save_typing() -> None:
    loaded = load_text("""
        name: small
        region: us-west-2
        network: {availability_zones: [us-west-2c]}
        instance_groups:
        - &head {name: head, instance_type: &type ml.m5.xlarge, instance_count: 1, node_type: controller}
        - <<: [*head]
          name: work
          instance_type: *type
          node_type: compute
          partition: cpu
    """)

    head, work = loaded.config.instance_groups
    assert (head.name, work.name) == ("head", "work")
    assert work.instance_count == head.instance_count == 1


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        pytest.param("name: a\nname: b\n", ["name: is there twice, again in line 2; keep one of them"], id="top"),
        pytest.param(
            "network: {cidr: 10.0.0.0/16, 'cidr': 10.1.0.0/16}\n",
            ["network.cidr: is there twice, again in line 1; keep one of them"],
            id="nested, quoted once",
        ),
        pytest.param(
            "instance_groups:\n- name: a\n- name: b\n  spot: true\n  spot: true\n  spot: true\n",
            [
                "instance_groups[b].spot: is there twice, again in line 5; keep one of them",
                "instance_groups[b].spot: is there twice, again in line 6; keep one of them",
            ],
            id="in a group, three times",
        ),
        pytest.param("tags: {1: a, '1': b}\n", [], id="a number and a text are two keys"),
        pytest.param(
            "a: {b: {c: &n {<<: &m {x: 1}, x: 2}}}\nd: {<<: *n}\n", [], id="a merged key may be overridden, then merged"
        ),
    ],
)
def test_keys_that_stand_twice(text: str, messages: list[str]) -> None:
    assert [message for message in told(findings_of(text)) if "twice" in message] == messages


@pytest.mark.parametrize(
    ("has", "message"),
    [
        pytest.param(None, "there is no folder 'own'; name one, relative to the file, or remove the line to use the library's scripts", id="no folder"),
        pytest.param((), "'own' has no controller.sh, login.sh, compute.sh; add it: HyperPod runs the script of the node's type", id="empty"),
        pytest.param(("controller.sh", "compute.sh"), "'own' has no login.sh; add it: HyperPod runs the script of the node's type", id="one script short"),
    ],
)  # fmt: skip
def test_own_scripts_that_are_incomplete(has: tuple[str, ...] | None, message: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(changed({"lifecycle": {"scripts": "own"}})))
    if has is not None:
        (tmp_path / "own").mkdir()
        for name in has:
            (tmp_path / "own" / name).touch()

    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "cluster.yaml")

    assert told(list(caught.value.findings)) == [f"lifecycle.scripts: {message}"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("x" * 5000, "cannot be read (File name too long); name a folder", id="long"),
        pytest.param("cluster.yaml", "there is no folder 'cluster.yaml'; name one, relative to the file, or remove the line to use the library's scripts", id="a file"),
    ],
)  # fmt: skip
def test_own_scripts_in_a_place_that_is_no_folder(name: str, problem: str) -> None:
    (message,) = told(findings_of(yaml.safe_dump(changed({"lifecycle": {"scripts": name}}))))

    assert message.startswith("lifecycle.scripts: ") and message.endswith(problem)


# -- text that something else would take the place of -------------------------------------------------------------------

CDK_WOULD = "CDK would put another value in the place of"
CLOUDFORMATION_WOULD = "CloudFormation would put another value in the place of"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        pytest.param("name", "${Token[TOKEN.1]}", f"{CDK_WOULD} ${{Token[…", id="name"),
        pytest.param("name", "a#{Token[", f"{CDK_WOULD} #{{Token[…", id="list token, unfinished"),
        pytest.param("region", "${Token[AWS.Region.3]}", f"{CDK_WOULD} ${{Token[…", id="region"),
        pytest.param("account", "${Token[AWS.AccountId.0]}", f"{CDK_WOULD} ${{Token[…", id="account"),
        pytest.param("tags.Team", "{{resolve:ssm:/x}}", f"{CLOUDFORMATION_WOULD} {{{{resolve:…", id="tag"),
        pytest.param(
            "tags.Team", "x {{ RESOLVE :ssm:/x}}", f"{CLOUDFORMATION_WOULD} {{{{ RESOLVE :…", id="spelt otherwise"
        ),
        pytest.param("network.cidr", "${Token[TOKEN.1]}", f"{CDK_WOULD} ${{Token[…", id="range"),
        pytest.param("lifecycle.scripts", "${Token[TOKEN.1]}", f"{CDK_WOULD} ${{Token[…", id="folder"),
        pytest.param("storage", "${Token[TOKEN.1]}", f"{CDK_WOULD} ${{Token[…", id="in place of settings"),
        pytest.param("instance_groups", "#{Token[TOKEN.1]}", f"{CDK_WOULD} #{{Token[…", id="in place of a list"),
        pytest.param("removal", "${Token[TOKEN.1]}", f"{CDK_WOULD} ${{Token[…", id="in place of a choice"),
        pytest.param("tags.Team", "{{  \nresolve:x}}", f"{CLOUDFORMATION_WOULD} {{{{ resolve:…", id="over two lines"),
        pytest.param("tags.Team", "{{\rresolve:x}}", f"{CLOUDFORMATION_WOULD} {{{{ resolve:…", id="a bare return"),
    ],
)
def test_text_that_is_replaced_later_is_refused(path: str, value: str, message: str) -> None:
    assert judge({path: value}) == [f"{path}: {message}, got {value!r}; write the value itself"]


@pytest.mark.parametrize("token", ["#{Token[TOKEN.3]}", "${Token[TOKEN.3]}"], ids=["of a list", "of text"])
def test_in_a_list_it_is_refused_once(token: str) -> None:
    (message,) = judge({"network.availability_zones": [token]})

    assert message.startswith(f"network.availability_zones[0]: {CDK_WOULD} {token[:8]}…")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("tags: {'${Token[TOKEN.1]}': x}", "tags.${Token[TOKEN.1]}", id="of a mapping"),
        pytest.param("'{{resolve:ssm:/x}}': 1", "{{resolve:ssm:/x}}", id="of a setting"),
        pytest.param("x: [{a: {'#{Token[1]}': 1}}]", "x[0].a.#{Token[1]}", id="below what is no setting"),
        pytest.param('tags: {"\\x24{Token[1]}": x}', "tags.${Token[1]}", id="escaped"),
        pytest.param("a: &a {'${Token[1]}': 1}\ntags: {<<: *a}", "tags.${Token[1]}", id="merged"),
    ],
)
def test_so_is_a_key(text: str, path: str) -> None:
    (message, *_) = [line for line in told(findings_of(text)) if line.startswith(f"{path}: ")]

    assert "would put another value in the place of" in message


def test_it_is_refused_behind_an_alias_too() -> None:
    messages = told(findings_of("name: &n '${Token[TOKEN.1]}'\ntags: {Team: *n}\n"))

    assert [line.partition(":")[0] for line in messages if CDK_WOULD in line] == ["name", "tags.Team"]
