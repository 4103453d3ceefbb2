"""Rules of users, groups and accounts: what Linux or Slurm would refuse on a node is refused at synth, all at once."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.judging import judge

GROUPS = [{"name": "research", "gid": 5000}]
ALICE = {"name": "alice", "uid": 5001, "group": "research"}
BOB = {"name": "bob", "uid": 5002, "group": "research"}
FS = {"capacity_gib": 1200}
NAME = "must be 1 to 32 lower-case letters, digits, hyphens and underscores that begin with a letter or an underscore"
SECRET = "arn:aws:secretsmanager:us-west-2:111122223333:secret:accounting-AbCdEf"
DATABASE = {"endpoint": "db.example.com", "secret_arn": SECRET}


def people(*users: Any, groups: Any = GROUPS, **more: Any) -> dict[str, Any]:
    return {"groups": groups, "users": list(users), "storage": FS, **more}


def test_people_as_they_should_be() -> None:
    assert judge(people(ALICE, BOB)) == []


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        pytest.param(people(ALICE, {**BOB, "uid": 5001}), ["users[bob].uid: 5001 is the uid of users[alice] too; give each a number of its own"], id="uids that clash"),
        pytest.param(people({**ALICE, "uid": 999}), ["users[alice].uid: must be 1001 to 60000, got 999; change it"], id="a system uid"),
        pytest.param(people({**ALICE, "uid": 0}), ["users[alice].uid: must be 1001 to 60000, got 0; change it"], id="root's uid"),
        pytest.param(people({**ALICE, "uid": 1000}), ["users[alice].uid: must be 1001 to 60000, got 1000; change it"], id="the image's user"),
        pytest.param(people({**ALICE, "uid": 65534}), ["users[alice].uid: must be 1001 to 60000, got 65534; change it"], id="nobody's uid"),
        pytest.param(people({**ALICE, "name": "Alice"}), [f"users[Alice].name: {NAME}, got 'Alice'; change it"], id="a capital"),
        pytest.param(people({**ALICE, "name": "1alice"}), [f"users[1alice].name: {NAME}, got '1alice'; change it"], id="a digit first"),
        pytest.param(people({**ALICE, "name": "a" * 33}), [f"users[{'a' * 33}].name: {NAME}, got '{'a' * 33}'; change it"], id="too long"),
        pytest.param(people({**ALICE, "name": "alice; reboot"}), [f"users[alice; reboot].name: {NAME}, got 'alice; reboot'; change it"], id="a command"),
        pytest.param(people({**ALICE, "name": "root"}), ["users[root].name: root is the system's own; use another name"], id="root"),
        pytest.param(people({**ALICE, "name": "ubuntu"}), ["users[ubuntu].name: ubuntu is the system's own; use another name"], id="the image's own user"),
        pytest.param(people({"name": "alice", "uid": 5001}), ["users[alice].group: is missing; add `group:`"], id="no group"),
        pytest.param(people({**ALICE, "group": "dev"}), ["users[alice].group: there is no group 'dev'; add it to groups, or use one of research"], id="a group that is not there"),
        pytest.param(people({**ALICE, "groups": ["dev"]}), ["users[alice].groups: there is no group 'dev'; add it to groups, or use one of research"], id="another group that is not there"),
        pytest.param(people(ALICE, {**ALICE, "uid": 5002, "home": "/b"}), ["users[1].name: an earlier user has the name 'alice' too; name each user once"], id="one user with two homes"),
        pytest.param(people({**ALICE, "home": "/fsx/home/bob"}, BOB), ["users[bob]: /fsx/home/bob is the home of users[alice] too; give each user a home of their own"], id="one home for two"),
        pytest.param(people({**ALICE, "home": "home/alice"}), ["users[alice].home: must be an absolute path without a slash at its end, got 'home/alice'; change it"], id="a home that is no path"),
        pytest.param(people({**ALICE, "home": "/fsx/../etc"}), ["users[alice].home: must be an absolute path without a slash at its end, got '/fsx/../etc'; change it"], id="a home by way of another folder"),
        pytest.param(people({**ALICE, "home": "/etc"}), ["users[alice].home: /etc is not a folder that one user can own; name a folder of the user's own, such as /fsx/home/alice"], id="a home in the system"),
        pytest.param(people({**ALICE, "home": "/fsx"}), ["users[alice].home: /fsx is not a folder that one user can own; name a folder of the user's own, such as /fsx/home/alice"], id="a home that is the file system"),
        pytest.param(people(ALICE, {**BOB, "home": "/fsx/home/alice/bob"}), ["users[bob].home: /fsx/home/alice/bob and /fsx/home/alice, the home of users[alice], lie one in the other, and a home is its owner's alone; put them beside each other"], id="a home in a home"),
        pytest.param(people({**ALICE, "home": "/fsx/home/bob/alice"}, BOB), ["users[bob]: /fsx/home/bob and /fsx/home/bob/alice, the home of users[alice], lie one in the other, and a home is its owner's alone; put them beside each other"], id="a home around a home"),
        pytest.param(people({**ALICE, "ssh_public_keys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]}), ["users[alice].ssh_public_keys[0]: must be a public key in one line, as in a file that ends with .pub, got '-----BEGIN OPENSSH PRIVATE KEY-----'; change it"], id="a private key"),
        pytest.param(people(groups=[*GROUPS, {"name": "dev", "gid": 5000}]), ["groups[dev].gid: 5000 is the gid of groups[research] too; give each a number of its own"], id="gids that clash"),
        pytest.param(people(groups=[{"name": "docker", "gid": 5000}]), ["groups[docker].name: docker is the system's own; use another name"], id="a system group"),
        pytest.param(people(ALICE, storage=None), None, id="no storage"),
        pytest.param(people(ALICE, lifecycle={"mode": "bootstrap"}), ["groups: no script runs in the mode bootstrap, so nobody makes them; set lifecycle.mode to extended, or remove them", "users: no script runs in the mode bootstrap, so nobody makes them; set lifecycle.mode to extended, or remove them"], id="nobody makes them"),
        pytest.param({"slurm": {"accounts": [{"name": "root"}]}}, ["slurm.accounts[root].name: root is Slurm's own; use another name"], id="Slurm's own account"),
        pytest.param({"slurm": {"accounts": [{"name": "a"}, {"name": "a"}]}}, ["slurm.accounts[1].name: a is an earlier account's too; use another name"], id="an account twice"),
        pytest.param({"slurm": {"accounts": [{"name": "a", "users": ["x", "x"]}]}}, ["slurm.accounts[a].users: 'x' is there twice; name it once"], id="a user twice"),
        pytest.param({"slurm": {"accounts": [{"name": "a", "users": ["x,y"]}]}}, ["slurm.accounts[a].users[0]: must be a user's name: 1 to 64 letters, digits, dots, hyphens and underscores, got 'x,y'; change it"], id="two names in one"),
        pytest.param({"slurm": {"accounts": [{"name": "a"}]}, "lifecycle": {"mode": "bootstrap"}}, ["slurm.accounts: no script runs in the mode bootstrap, so nobody makes them; set lifecycle.mode to extended, or remove them"], id="nobody makes the accounts"),
        pytest.param({"slurm": {"accounting_database": DATABASE}, "node_provisioning_mode": "standard"}, ["slurm.accounting_database: needs continuous provisioning; set node_provisioning_mode to continuous, or remove it"], id="a database without continuous provisioning"),
        pytest.param({"slurm": {"accounting_database": {**DATABASE, "secret_arn": SECRET.replace("us-west-2", "us-east-1")}}}, ["slurm.accounting_database.secret_arn: is in 'us-east-1', the cluster in us-west-2; use one of the cluster's region"], id="a secret elsewhere"),
    ],
)  # fmt: skip
def test_what_a_node_would_refuse(settings: dict[str, Any], messages: list[str] | None) -> None:
    if messages is None:
        (warning,) = judge({name: value for name, value in settings.items() if value is not None})
        assert warning.startswith("warning: users: there is no shared storage, so each node has homes of its own")
    else:
        assert judge(settings) == messages


def test_all_at_once() -> None:
    found = judge(people({**ALICE, "uid": 10}, {"name": "Bob", "uid": 5001}, groups=[{"name": "research", "gid": 1}]))
    assert [message.split(":")[0] for message in found] == [
        "groups[research].gid", "users[alice].uid", "users[Bob].group", "users[Bob].name"
    ]  # fmt: skip


def test_homes_lie_on_openzfs_where_it_is() -> None:
    storage = {**FS, "openzfs": {"file_system_id": "fs-0fedcba9876543210", "mount_path": "/nfs"}}
    (message,) = judge(people({**ALICE, "home": "/nfs/bob"}, BOB, storage=storage))
    assert message.startswith("users[bob]: /nfs/bob is the home of users[alice] too")


@pytest.mark.parametrize(("mode", "database", "warned"), [("customer_managed", {}, True), ("customer_managed", {"accounting_database": DATABASE}, False), ("extended", {}, False)])  # fmt: skip
def test_accounts_without_a_database(mode: str, database: dict[str, Any], warned: bool) -> None:
    found = judge({"slurm": {"accounts": [{"name": "a"}], **database}, "lifecycle": {"mode": mode}})
    assert [message.split(";")[0] for message in found] == [
        "warning: slurm.accounts: under customer_managed the controller may have no accounting database, and the step then fails"
    ][: int(warned)]


def test_accounts_may_have_users_of_a_directory_of_one_s_own() -> None:
    assert judge({"slurm": {"accounts": [{"name": "a", "users": ["Somebody.of-LDAP"]}]}}) == []


ACCOUNTS = {"slurm": {"accounts": [{"name": "a", "users": ["alice", "bob"]}]}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(people(ALICE, **ACCOUNTS), "slurm.accounts[a].users: the file has no user 'bob'", id="a user whom nobody makes"),
        pytest.param(people(ALICE, {**BOB, "name": "carl"}, slurm={"accounts": [{"name": "a", "users": ["alice"]}]}), "users[carl]: is in no account", id="a user in no account"),
        pytest.param(people({**ALICE, "home": "/srv/alice"}), "users[alice].home: /srv/alice is on no storage of the file", id="a home that ends with the node"),
        pytest.param(people(ALICE, BOB, **ACCOUNTS, lifecycle={"steps": {"slurm_conf": False}}), "lifecycle.steps.slurm_conf: is false, so slurm.conf does not enforce the accounts", id="accounts that nothing enforces"),
    ],
)  # fmt: skip
def test_what_is_only_worth_knowing(settings: dict[str, Any], message: str) -> None:
    (warning,) = judge(settings)
    assert warning.startswith(f"warning: {message}")


def test_a_user_whose_name_is_no_name_is_told_without_guesses_about_accounts() -> None:
    assert judge(people(ALICE, {**BOB, "name": 7}, **ACCOUNTS)) == [
        "users[1].name: must be text, got 7; put it in quotes"
    ]


def test_accounts_that_fit_their_users() -> None:
    assert judge(people(ALICE, BOB, **ACCOUNTS)) == []


@pytest.mark.parametrize("name", ["cdrom", "tape", "kmem", "_apt"])
def test_groups_of_every_debian(name: str) -> None:
    found = judge(people({**ALICE, "group": name}, groups=[{"name": name, "gid": 5000}]))
    assert found == [f"groups[{name}].name: {name} is the system's own; use another name"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slurm": {}}, None),
        (
            {"slurm": {"metadata_users": []}},
            "warning: slurm.metadata_users: jobs of other users no longer get what is granted",
        ),
        (
            {"slurm": {"metadata_users": ["Alice.B"]}},
            "warning: slurm.metadata_users: jobs of other users no longer get",
        ),
        ({"slurm": {"metadata_users": ["a", "a"]}}, "slurm.metadata_users: 'a' is there twice"),
        ({"slurm": {"metadata_users": ["a b"]}}, "slurm.metadata_users[0]: must be a user's name"),
        (
            {"slurm": {"metadata_users": []}, "lifecycle": {"steps": {"metadata": False}}},
            "lifecycle.steps.metadata: is false, so nothing refuses the metadata to the other users",
        ),
        (
            {"slurm": {"metadata_users": []}, "lifecycle": {"mode": "bootstrap"}},
            "slurm.metadata_users: the library's own scripts refuse the metadata to the other users, and they do not run",
        ),
    ],
)
def test_whose_jobs_may_take_the_nodes_role(settings: dict[str, Any], message: str | None) -> None:
    found = [line for line in judge(settings) if "metadata" in line]
    assert found[0].startswith(message) if message else found == [], found
