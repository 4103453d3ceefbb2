"""Rules of users, groups and accounts: what Linux or Slurm would refuse on a node is refused at synth, all at once."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.findings import Found
from helpers.validating import validate

GROUPS = [{"name": "research", "gid": 5000}]
ALICE = {"name": "alice", "uid": 5001, "group": "research"}
BOB = {"name": "bob", "uid": 5002, "group": "research"}
FS = {"capacity_gib": 1200}
SECRET = "arn:aws:secretsmanager:us-west-2:111122223333:secret:accounting-AbCdEf"
DATABASE = {"endpoint": "db.example.com", "secret_arn": SECRET}


def people(*users: Any, groups: Any = GROUPS, **more: Any) -> dict[str, Any]:
    return {"groups": groups, "users": list(users), "storage": FS, **more}


def test_people_as_they_should_be() -> None:
    assert validate(people(ALICE, BOB)) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(people(ALICE, {**BOB, "uid": 5001}), [("id-duplicated", "users[bob].uid")], id="uids that clash"),
        pytest.param(people({**ALICE, "uid": 999}), [("value-out-of-range", "users[alice].uid")], id="a system uid"),
        pytest.param(people({**ALICE, "uid": 0}), [("value-out-of-range", "users[alice].uid")], id="root's uid"),
        pytest.param(people({**ALICE, "uid": 1000}), [("value-out-of-range", "users[alice].uid")], id="the image's user"),
        pytest.param(people({**ALICE, "uid": 65534}), [("value-out-of-range", "users[alice].uid")], id="nobody's uid"),
        pytest.param(people({**ALICE, "name": "Alice"}), [("value-malformed", "users[Alice].name")], id="a capital"),
        pytest.param(people({**ALICE, "name": "1alice"}), [("value-malformed", "users[1alice].name")], id="a digit first"),
        pytest.param(people({**ALICE, "name": "a" * 33}), [("value-malformed", "users[aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa].name")], id="too long"),
        pytest.param(people({**ALICE, "name": "alice; reboot"}), [("value-malformed", "users[alice; reboot].name")], id="a command"),
        pytest.param(people({**ALICE, "name": "root"}), [("name-of-the-system", "users[root].name")], id="root"),
        pytest.param(people({**ALICE, "name": "ubuntu"}), [("name-of-the-system", "users[ubuntu].name")], id="the image's own user"),
        pytest.param(people({"name": "alice", "uid": 5001}), [("setting-missing", "users[alice].group")], id="no group"),
        pytest.param(people({**ALICE, "group": "dev"}), [("group-unknown", "users[alice].group")], id="a group that is not there"),
        pytest.param(people({**ALICE, "groups": ["dev"]}), [("group-unknown", "users[alice].groups")], id="another group that is not there"),
        pytest.param(people(ALICE, {**ALICE, "uid": 5002, "home": "/b"}), [("user-or-group-name-duplicated", "users[1].name")], id="one user with two homes"),
        pytest.param(people({**ALICE, "home": "/fsx/home/bob"}, BOB), [("home-duplicated", "users[bob]")], id="one home for two"),
        pytest.param(people({**ALICE, "home": "home/alice"}), [("value-malformed", "users[alice].home")], id="a home that is no path"),
        pytest.param(people({**ALICE, "home": "/fsx/../etc"}), [("value-malformed", "users[alice].home")], id="a home by way of another folder"),
        pytest.param(people({**ALICE, "home": "/etc"}), [("home-not-of-one-user", "users[alice].home")], id="a home in the system"),
        pytest.param(people({**ALICE, "home": "/fsx"}), [("home-not-of-one-user", "users[alice].home")], id="a home that is the file system"),
        pytest.param(people(ALICE, {**BOB, "home": "/fsx/home/alice/bob"}), [("home-in-another", "users[bob].home")], id="a home in a home"),
        pytest.param(people({**ALICE, "home": "/fsx/home/bob/alice"}, BOB), [("home-in-another", "users[bob]")], id="a home around a home"),
        pytest.param(people({**ALICE, "ssh_public_keys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]}), [("value-malformed", "users[alice].ssh_public_keys[0]")], id="a private key"),
        pytest.param(people(groups=[*GROUPS, {"name": "dev", "gid": 5000}]), [("id-duplicated", "groups[dev].gid")], id="gids that clash"),
        pytest.param(people(groups=[{"name": "docker", "gid": 5000}]), [("name-of-the-system", "groups[docker].name")], id="a system group"),
        pytest.param(people(ALICE, storage=None), None, id="no storage"),
        pytest.param(people(ALICE, lifecycle={"mode": "bootstrap"}), [("users-without-scripts", "groups"), ("users-without-scripts", "users")], id="nobody makes them"),
        pytest.param({"slurm": {"accounts": [{"name": "root"}]}}, [("account-of-slurm", "slurm.accounts[root].name")], id="Slurm's own account"),
        pytest.param({"slurm": {"accounts": [{"name": "a"}, {"name": "a"}]}}, [("account-duplicated", "slurm.accounts[1].name")], id="an account twice"),
        pytest.param({"slurm": {"accounts": [{"name": "a", "users": ["x", "x"]}]}}, [("value-duplicated", "slurm.accounts[a].users")], id="a user twice"),
        pytest.param({"slurm": {"accounts": [{"name": "a", "users": ["x,y"]}]}}, [("value-malformed", "slurm.accounts[a].users[0]")], id="two names in one"),
        pytest.param({"slurm": {"accounts": [{"name": "a"}]}, "lifecycle": {"mode": "bootstrap"}}, [("users-without-scripts", "slurm.accounts")], id="nobody makes the accounts"),
        pytest.param({"slurm": {"accounting_database": DATABASE}, "node_provisioning_mode": "standard"}, [("continuous-provisioning-required", "slurm.accounting_database")], id="a database without continuous provisioning"),
        pytest.param({"slurm": {"accounting_database": {**DATABASE, "secret_arn": SECRET.replace("us-west-2", "us-east-1")}}}, [("arn-in-another-region", "slurm.accounting_database.secret_arn")], id="a secret elsewhere"),
    ],
)  # fmt: skip
def test_user_settings_that_a_node_would_refuse_are_refused(settings: dict[str, Any], expected: Found | None) -> None:
    if expected is None:
        without_storage = {name: value for name, value in settings.items() if value is not None}
        assert validate(without_storage) == [("home-without-storage", "users")]
    else:
        assert validate(settings) == expected


def test_all_errors_of_users_and_groups_are_reported_at_once() -> None:
    found = validate(
        people({**ALICE, "uid": 10}, {"name": "Bob", "uid": 5001}, groups=[{"name": "research", "gid": 1}])
    )
    assert [path for _, path in found] == [
        "groups[research].gid", "users[alice].uid", "users[Bob].group", "users[Bob].name"
    ]  # fmt: skip


def test_homes_lie_on_openzfs_where_it_is() -> None:
    storage = {**FS, "openzfs": {"file_system_id": "fs-0fedcba9876543210", "mount_path": "/nfs"}}
    assert validate(people({**ALICE, "home": "/nfs/bob"}, BOB, storage=storage)) == [("home-duplicated", "users[bob]")]


@pytest.mark.parametrize(("mode", "database", "warned"), [("customer_managed", {}, True), ("customer_managed", {"accounting_database": DATABASE, "metadata_users": []}, False), ("extended", {}, False)])  # fmt: skip
def test_accounts_without_a_database(mode: str, database: dict[str, Any], warned: bool) -> None:
    found = validate({"slurm": {"accounts": [{"name": "a"}], **database}, "lifecycle": {"mode": mode}})
    assert found == [("accounts-without-database", "slurm.accounts")][: int(warned)]


@pytest.mark.parametrize(
    ("slurm", "path"),
    [
        ({"qos": [{"name": "low"}]}, "slurm.qos"),
        ({"partitions": {"dev": {"allow_accounts": ["a"]}}}, "slurm.partitions"),
    ],
)
def test_qos_and_accounts_of_partitions_are_in_the_database_too(slurm: dict[str, Any], path: str) -> None:
    found = validate({"slurm": slurm, "lifecycle": {"mode": "customer_managed"}})
    assert ("accounts-without-database", path) in found


def test_accounts_may_have_users_of_a_directory_of_one_s_own() -> None:
    assert validate({"slurm": {"accounts": [{"name": "a", "users": ["Somebody.of-LDAP"]}]}}) == []


ACCOUNTS = {"slurm": {"accounts": [{"name": "a", "users": ["alice", "bob"]}]}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(people(ALICE, **ACCOUNTS), ("account-user-unknown", "slurm.accounts[a].users"), id="a user whom nobody makes"),
        pytest.param(people(ALICE, {**BOB, "name": "carl"}, slurm={"accounts": [{"name": "a", "users": ["alice"]}]}), ("user-without-account", "users[carl]"), id="a user in no account"),
        pytest.param(people({**ALICE, "home": "/srv/alice"}), ("home-on-each-node", "users[alice].home"), id="a home that ends with the node"),
        pytest.param(people(ALICE, BOB, **ACCOUNTS, lifecycle={"steps": {"slurm_conf": False}}), ("accounts-not-enforced", "lifecycle.steps.slurm_conf"), id="accounts that nothing enforces"),
    ],
)  # fmt: skip
def test_user_settings_that_are_probably_a_mistake_are_warnings(
    settings: dict[str, Any], message: tuple[str, str]
) -> None:
    assert validate(settings) == [message]


def test_an_invalid_user_name_is_reported_without_errors_about_accounts() -> None:
    assert validate(people(ALICE, {**BOB, "name": 7}, **ACCOUNTS)) == [("value-of-wrong-type", "users[1].name")]


def test_accounts_that_fit_their_users() -> None:
    assert validate(people(ALICE, BOB, **ACCOUNTS)) == []


@pytest.mark.parametrize("name", ["cdrom", "tape", "kmem", "_apt"])
def test_groups_of_every_debian(name: str) -> None:
    found = validate(people({**ALICE, "group": name}, groups=[{"name": name, "gid": 5000}]))
    assert found == [("name-of-the-system", f"groups[{name}].name")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slurm": {}}, None),
        (
            {"slurm": {"drain": {"operators": ["arn:aws:iam::111122223333:role/ops"]}}},
            ("metadata-open", "slurm.metadata_users"),
        ),
        ({"slurm": {"accounting_database": DATABASE}}, ("metadata-open", "slurm.metadata_users")),
        ({"monitoring": {}}, ("metadata-open", "slurm.metadata_users")),
        (
            {"monitoring": {}, "lifecycle": {"steps": {"metadata": False}}},
            ("metadata-open-everywhere", "lifecycle.steps.metadata"),
        ),
        (
            {"monitoring": {}, "lifecycle": {"mode": "bootstrap"}},
            ("metadata-not-closed-by-scripts", "slurm.metadata_users"),
        ),
        ({"monitoring": {}, "slurm": {"metadata_users": []}}, None),
        ({"monitoring": {}, "slurm": {"metadata_users": ["Alice.B"]}}, None),
        ({"slurm": {"metadata_users": ["a", "a"]}}, ("value-duplicated", "slurm.metadata_users")),
        ({"slurm": {"metadata_users": ["a b"]}}, ("value-malformed", "slurm.metadata_users[0]")),
        (
            {"slurm": {"metadata_users": []}, "lifecycle": {"steps": {"metadata": False}}},
            ("metadata-users-without-step", "lifecycle.steps.metadata"),
        ),
        (
            {"slurm": {"metadata_users": []}, "lifecycle": {"mode": "bootstrap"}},
            ("metadata-users-without-scripts", "slurm.metadata_users"),
        ),
    ],
)
def test_open_metadata_that_gives_jobs_the_nodes_role_is_reported(
    settings: dict[str, Any], message: tuple[str, str] | None
) -> None:
    found = [each for each in validate(settings) if "metadata" in each[1]]
    assert found == ([message] if message else [])
