"""Reading a file: whatever it holds, the answer is a cluster or a message, never a stack trace."""

from __future__ import annotations

import itertools
import os
import re
import time
from pathlib import Path

import pytest
import yaml

from cdk_hyperpod import loader
from cdk_hyperpod.errors import ConfigError
from cdk_hyperpod.loader import MAX_FILE_BYTES, load_config
from cdk_hyperpod.typed.yaml_text import MAX_VALUES
from helpers.findings import found, refused
from helpers.validating import SMALL, changed, changed_findings, findings_of, load_text, validate

EMPTY = ("file-empty", "the file is empty")
NO_SETTINGS = "value-not-settings"


def yaml_error(reason: str, code: str = "file-not-yaml") -> tuple[str, str]:
    return code, f"cannot be read as YAML: {reason}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", EMPTY, id="empty"),
        pytest.param(" \n\n", EMPTY, id="blank"),
        pytest.param("# name: a\n", EMPTY, id="comments only"),
        pytest.param("---\n# name: a\n", EMPTY, id="comments in a document"),
        pytest.param("---\n...\n", EMPTY, id="an empty document"),
        pytest.param("null\n", EMPTY, id="null"),
        pytest.param("cluster", (NO_SETTINGS, "got 'cluster'"), id="one word"),
        pytest.param("- name: a\n", (NO_SETTINGS, "got [{'name': 'a'}]"), id="a list"),
        pytest.param(b"\xff\xfen\x00", ("file-not-utf-8", "byte 0, in line 1, is not UTF-8 text"), id="UTF-16"),
        pytest.param(b"name: caf\xe9\n", ("file-not-utf-8", "byte 9, in line 1, is not UTF-8 text"), id="Latin-1"),
        pytest.param("name: a\0b\n", yaml_error("the character U+0000 is not allowed in line 1"), id="NUL"),
        pytest.param("name: a\x1b[31m\n", yaml_error("the character U+001B is not allowed in line 1"), id="escape"),
        pytest.param(
            "name: {a\n",
            yaml_error("the { in line 1 is not closed"),
            id="open bracket",
        ),
        pytest.param(
            "a: {b: [c, d]\nname: a\ne: {f: g}\n",
            yaml_error("the { in line 1 is not closed"),
            id="open bracket, noticed in the next line",
        ),
        pytest.param(
            "name: a\na:\n  - {b: [c, d}\n  - {b: [c, d]}\n",
            yaml_error("the [ in line 3 is not closed"),
            id="closed by another bracket",
        ),
        pytest.param(
            "a: {\n  b: 1\n  c: 2,\n}\n",
            yaml_error("while parsing a flow mapping, expected ',' or '}', but got ':' in line 3"),
            id="closed bracket with a comma missing",
        ),
        pytest.param(
            'name: a\nregion: "b\na: 1\nb: 2\n',
            yaml_error("a quote opens and is not closed in line 2"),
            id="open quote",
        ),
        pytest.param(
            "name: a\nregion b\na: 1\n",
            yaml_error("there is no colon with a space behind it in line 2"),
            id="colon missing",
        ),
        pytest.param(
            "name: a\n<<<<<<< HEAD\nregion: b\n=======\nregion: c\n>>>>>>> main\n",
            yaml_error("the marker <<<<<<< of a merge conflict is in line 2", "file-with-merge-conflict"),
            id="merge conflict",
        ),
        pytest.param(
            "a:\r\n  - b: c\r\n    d: e\r\n=======\r\n    d: f\r\n",
            yaml_error("the marker ======= of a merge conflict is in line 4", "file-with-merge-conflict"),
            id="half of a merge conflict",
        ),
        pytest.param(
            "name: a\n\tregion: b\n",
            yaml_error("there is a tab in line 2", "file-with-tabs"),
            id="tab",
        ),
        pytest.param(
            "a:\n  - b: 1\n    c: 2\n   d: 3\n",
            yaml_error("the indentation is that of no line above in line 4"),
            id="wrong indentation",
        ),
        pytest.param(
            "a:\n  - b: 1\n      c: 2\n",
            yaml_error("a second key follows a value in line 3"),
            id="indented too far",
        ),
        pytest.param(
            "a:\n  b:\u00a01\n  c: 2\n",
            yaml_error("there is a no-break space (U+00A0) in line 2"),
            id="no-break space",
        ),
        pytest.param(
            "a: 1\u2028b: 2\u2028}",
            yaml_error("there is a } that closes nothing in line 3"),
            id="other breaks of lines",
        ),
        pytest.param(
            "a: {b: 1}}\nc: 2\n", yaml_error("there is a } that closes nothing in line 1"), id="a bracket too many"
        ),
        pytest.param(
            "name: a\n---\nname: b\n",
            yaml_error("expected a single document in the stream, but found another document in line 2"),
            id="two documents",
        ),
        pytest.param("name: *missing\n", yaml_error("found undefined alias 'missing' in line 1"), id="no such anchor"),
        pytest.param("name: &n [*n]\n", yaml_error("a value contains itself in line 1"), id="list in itself"),
        pytest.param("name:\n  &n {<<: *n}\n", yaml_error("a value contains itself in line 2"), id="merge of itself"),
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
        pytest.param(b"a: 1\nb: \xff\n", ("file-not-utf-8", "byte 8, in line 2, is not UTF-8 text"), id="one bad byte"),
        pytest.param(
            "x" * (MAX_FILE_BYTES + 1),
            ("file-too-large", "the file has more than 1,048,576 bytes"),
            id="huge",
        ),
        pytest.param(
            "é" * MAX_FILE_BYTES,
            ("file-too-large", "the file has more than 1,048,576 bytes"),
            id="huge and cut inside a character",
        ),
        pytest.param(
            "[" + "x," * MAX_VALUES + "]",
            yaml_error("more than 20,000 values, counting each use of an alias, in line 1"),
            id="many",
        ),
    ],
)
def test_a_file_that_is_no_cluster_file_gets_one_message(text: str | bytes, expected: tuple[str, str]) -> None:
    code, reason = expected
    (finding,) = findings_of(text)
    assert (finding.code, finding.path) == (code, "")
    assert reason in finding.problem
    if named := re.search(r"\bin line (\d+)", reason):
        assert finding.line == int(named[1])


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

    (finding,) = findings_of("".join(lines))
    assert (finding.code, finding.line) == ("file-not-yaml", 5)
    assert "more than 20,000 values, counting each use of an alias, in line 5" in finding.problem
    assert time.process_time() - start < 5


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "absolute"])
def test_a_file_that_is_not_there(relative: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    looked_at = tmp_path / "no" / "such.yaml"
    name = "no/such.yaml" if relative else str(looked_at)

    with pytest.raises(ConfigError) as caught:
        load_config(name)

    assert found(caught.value.findings) == [("file-not-found", "")]
    assert caught.value.source == name and str(looked_at) in caught.value.findings[0].problem


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)

    assert found(caught.value.findings) == [("file-unreadable", "")]
    assert "(Is a directory)" in str(caught.value)


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
    assert found(caught.value.findings) == [("file-unreadable", "")] and reason in line
    assert head.isprintable()


def test_a_stream_without_end_is_refused() -> None:
    with refused(("file-too-large", "")) as caught:
        load_config("/dev/zero")
    assert caught.value.source == "/dev/zero"


@pytest.mark.parametrize("has_writer", [False, True])
def test_a_pipe_from_which_nothing_comes_is_not_waited_for_without_end(
    has_writer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "_SILENCE_S", 0.1)
    pipe = tmp_path / "cluster.yaml"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR) if has_writer else None
    with refused(("file-unreadable", "")) as caught:
        load_config(pipe)
    assert "(nothing came from it for 0.1 seconds)" in str(caught.value)
    if writer is not None:
        os.close(writer)


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
    ("text", "lines"),
    [
        pytest.param("name: a\nname: b\n", [("name", 2)], id="top"),
        pytest.param(
            "network: {cidr: 10.0.0.0/16, 'cidr': 10.1.0.0/16}\n",
            [("network.cidr", 1)],
            id="nested, quoted once",
        ),
        pytest.param(
            "instance_groups:\n- name: a\n- name: b\n  spot: true\n  spot: true\n  spot: true\n",
            [
                ("instance_groups[b].spot", 5),
                ("instance_groups[b].spot", 6),
            ],
            id="in a group, three times",
        ),
        pytest.param("tags: {1: a, '1': b}\n", [], id="a number and a text are two keys"),
        pytest.param(
            "a: {b: {c: &n {<<: &m {x: 1}, x: 2}}}\nd: {<<: *n}\n", [], id="a merged key may be overridden, then merged"
        ),
    ],
)
def test_keys_that_stand_twice(text: str, lines: list[tuple[str, int]]) -> None:
    twice = [finding for finding in findings_of(text) if finding.code == "setting-duplicated"]
    assert [(finding.path, finding.problem) for finding in twice] == [
        (path, f"is duplicated in line {n}") for path, n in lines
    ]


@pytest.mark.parametrize(
    ("has", "code", "missing"),
    [
        pytest.param(None, "scripts-not-found", "", id="no folder"),
        pytest.param((), "scripts-incomplete", "controller.sh, login.sh, compute.sh", id="empty"),
        pytest.param(("controller.sh", "compute.sh"), "scripts-incomplete", "login.sh", id="one script short"),
    ],
)  # fmt: skip
def test_own_scripts_that_are_incomplete(has: tuple[str, ...] | None, code: str, missing: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(changed({"lifecycle": {"scripts": "own"}})))
    if has is not None:
        (tmp_path / "own").mkdir()
        for name in has:
            (tmp_path / "own" / name).touch()

    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "cluster.yaml")

    assert found(caught.value.findings) == [(code, "lifecycle.scripts")]
    assert caught.value.findings[0].problem.endswith(missing)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        pytest.param("x" * 5000, "scripts-unreadable", id="long"),
        pytest.param("cluster.yaml", "scripts-not-found", id="a file"),
    ],
)  # fmt: skip
def test_own_scripts_in_a_place_that_is_no_folder(name: str, code: str) -> None:
    assert validate({"lifecycle": {"scripts": name}}) == [(code, "lifecycle.scripts")]


# -- text that something else would take the place of -------------------------------------------------------------------

CDK_WOULD = "CDK replaces"
CLOUDFORMATION_WOULD = "CloudFormation replaces"
REPLACED = "value-replaced-at-deployment"


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
    (finding,) = changed_findings({path: value})
    assert (finding.code, finding.path) == (REPLACED, path)
    assert finding.problem == f"{message} by another value, got {value!r}"


@pytest.mark.parametrize("token", ["#{Token[TOKEN.3]}", "${Token[TOKEN.3]}"], ids=["of a list", "of text"])
def test_in_a_list_it_is_refused_once(token: str) -> None:
    (finding,) = changed_findings({"network.availability_zones": [token]})

    assert (finding.code, finding.path) == (REPLACED, "network.availability_zones[0]")
    assert finding.problem.startswith(f"{CDK_WOULD} {token[:8]}…")


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
    assert (REPLACED, path) in found(findings_of(text))


def test_it_is_refused_behind_an_alias_too() -> None:
    replaced = [
        each for each in found(findings_of("name: &n '${Token[TOKEN.1]}'\ntags: {Team: *n}\n")) if each[0] == REPLACED
    ]

    assert replaced == [(REPLACED, "name"), (REPLACED, "tags.Team")]
