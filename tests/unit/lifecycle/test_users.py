"""Step users: which commands a node needs, and homes that are made with their owner's rights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from helpers.lifecycle.programs import LIFECYCLE, load

users = load("steps/30_users.py")
User, Accounts = users.User, users.Accounts
GIDS = {"research": 5000, "gpu": 5001}
ALICE = User("alice", 5001, "research", frozenset({"gpu"}), "/fsx/home/alice")
UBUNTU = User("ubuntu", 1000, "ubuntu", frozenset({"docker"}), "/home/ubuntu")
FRESH = Accounts({"ubuntu": UBUNTU}, {"ubuntu": 1000, "docker": 120})
DONE = Accounts({"ubuntu": UBUNTU, "alice": ALICE}, {**FRESH.gids, **GIDS})


def commands(wanted: list[object], node: object, made: list[str], gids: dict[str, int] = GIDS) -> list[str]:
    return [" ".join(command) for command in users.commands_for(wanted, gids, node, made)]


def test_a_fresh_node_gets_all() -> None:
    assert commands([ALICE], FRESH, ["alice"]) == [
        "groupadd --gid 5000 research",
        "groupadd --gid 5001 gpu",
        "useradd --uid 5001 --gid research --groups gpu --home-dir /fsx/home/alice --no-create-home --shell /bin/bash alice",
    ]


def test_a_node_that_is_as_it_should_be_is_left_alone() -> None:
    assert commands([ALICE], DONE, ["alice"]) == []


def test_a_user_removed_from_the_file_is_locked_once_and_unlocked_when_added_again() -> None:
    assert commands([], DONE, ["alice"]) == ["usermod --lock --expiredate 1 alice"]
    locked = Accounts(DONE.users, DONE.gids, expired=frozenset({"alice"}), locked=frozenset({"alice"}))
    assert commands([], locked, ["alice"]) == []
    assert commands([ALICE], locked, ["alice"]) == ["usermod --expiredate  alice"]


def test_an_expiry_date_set_by_others_is_kept() -> None:
    expired = Accounts(DONE.users, DONE.gids, expired=frozenset({"alice"}))
    assert commands([ALICE], expired, ["alice"]) == []
    assert commands([], expired, ["alice"]) == []


@pytest.mark.parametrize(
    ("field", "expired", "locked"),
    [("", False, False), ("0", False, False), ("1", True, True), ("20000", True, False), ("90000", False, False)],
)
def test_a_date_keeps_out_once_it_is_over(
    monkeypatch: pytest.MonkeyPatch, field: str, expired: bool, locked: bool
) -> None:
    """20000 is 2024-10-04. Whose date lies ahead can log in, so who leaves the file has to be locked."""
    tables = {
        "passwd": "alice:x:5001:5000::/fsx/home/alice:/bin/bash\n",
        "group": "research:x:5000:\ngpu:x:5001:alice\n",
        "shadow": f"root:*:20000:0:99999:7:::\nalice:!:20000:0:99999:7::{field}:\nbroken\n",
    }
    monkeypatch.setattr(users, "must_run", lambda _, table: tables[table])
    found = users.read_accounts()
    assert (found.users["alice"], found.gids) == (ALICE, GIDS)
    assert ("alice" in found.expired, "alice" in found.locked) == (expired, locked)


def test_users_that_are_not_ours_are_never_changed() -> None:
    assert commands([], DONE, []) == []
    assert commands([], FRESH, ["gone-from-a-replaced-node"], gids={}) == []


def test_changes_of_a_user() -> None:
    other = User("alice", 5001, "gpu", frozenset({"docker"}), "/elsewhere")
    node = Accounts({"alice": other}, DONE.gids)
    assert commands([ALICE], node, ["alice"]) == [
        "usermod --gid research alice",
        "usermod --home /fsx/home/alice alice",
        "usermod --groups docker,gpu alice",
    ]


def test_a_group_that_left_the_file_loses_our_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run knows of the group only what the first one noted; the image's group docker stays alice's."""
    monkeypatch.setenv("PROVISION_ROOT", str(tmp_path))
    told: list[str] = []
    alice = User("alice", 5001, "research", frozenset({"gpu", "docker"}), "/fsx/home/alice")
    monkeypatch.setattr(users, "read_accounts", lambda: Accounts({"alice": alice}, DONE.gids))
    monkeypatch.setattr(users, "must_run", lambda *command: told.append(" ".join(command)))
    monkeypatch.setattr(users, "make_home", lambda *_: None)
    monkeypatch.setattr(users, "make_homes", lambda *_: None)
    file = tmp_path / "cluster.json"
    for groups in (["gpu"], []):
        assert told == []
        user = {"name": "alice", "uid": 5001, "group": "research", "groups": groups, "home": alice.home}
        gids = [{"name": name, "gid": GIDS[name]} for name in ("research", *groups)]
        file.write_text(json.dumps({"users": [user], "groups": gids}))
        users.make_users(str(file))
    assert told == ["usermod --groups docker alice"]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (Accounts({"eve": User("eve", 5001, "eve", frozenset(), "/home/eve")}, GIDS), "the uid 5001 of alice is eve's here"),
        (Accounts({"alice": User("alice", 1001, "research", frozenset(), "/h")}, GIDS), "the user alice has uid 1001 here, the cluster file says 5001"),
        (Accounts({}, {"research": 900}), "the group research has gid 900 here, the cluster file says 5000"),
        (Accounts({}, {"slurm": 5000}), "the gid 5000 of the group research is slurm's here"),
    ],
)  # fmt: skip
def test_a_user_name_or_uid_that_is_taken_fails_the_step(node: object, words: str) -> None:
    with pytest.raises(users.StepError) as caught:
        commands([ALICE], node, [])
    assert str(caught.value).startswith(words)
    assert str(caught.value).endswith("give it another name or number in the file")


def test_keys_of_the_user_s_own_stay() -> None:
    one = users.with_keys("ssh-rsa MINE me\n", ["ssh-ed25519 A", "ssh-ed25519 B"])
    assert users.with_keys(one, ["ssh-ed25519 A", "ssh-ed25519 B"]) == one
    two = users.with_keys(one, ["ssh-ed25519 B"])
    assert "ssh-rsa MINE me" in two and "ssh-ed25519 A" not in two and two.count(users.BEGIN) == 1


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not on this machine: no key can be made")
def test_a_home_is_furnished_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_ROOT", str(tmp_path))
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "etc/skel").mkdir(parents=True)
    (tmp_path / "etc/skel/.bashrc").write_text("# new\n")
    (home / ".bashrc").write_text("# mine\n")
    users.furnish("alice", home, ["ssh-ed25519 LAPTOP"])
    first = {file.name: (file.read_bytes(), file.stat().st_mode & 0o777) for file in (home / ".ssh").iterdir()}
    users.furnish("alice", home, ["ssh-ed25519 LAPTOP"])
    assert first == {file.name: (file.read_bytes(), file.stat().st_mode & 0o777) for file in (home / ".ssh").iterdir()}
    assert {name: mode for name, (_, mode) in first.items()} == {
        "id_ed25519": 0o600, "id_ed25519.pub": 0o644, "authorized_keys": 0o600
    }  # fmt: skip
    public = (home / ".ssh/id_ed25519.pub").read_text().strip()
    assert public in (home / ".ssh/authorized_keys").read_text()
    assert (home / ".bashrc").read_text() == "# mine\n"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not on this machine: no key can be made")
def test_modes_that_ssh_refuses_are_warned_of_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROVISION_ROOT", str(tmp_path))
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    users.furnish("alice", home, [])
    assert "WARNING" not in capsys.readouterr().err
    home.chmod(0o777)
    key = home / ".ssh/id_ed25519"
    key.chmod(0o666)
    users.furnish("alice", home, [])
    said = capsys.readouterr().err
    assert f"{home} has mode 777: others may write there, and sshd takes no key; `chmod go-w {home}`" in said
    assert f"{key} has mode 666: others may read it, and ssh does not use it; `chmod 600 {key}`" in said
    assert (home.stat().st_mode & 0o777, key.stat().st_mode & 0o777) == (0o777, 0o666)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a home to another user needs root")
@pytest.mark.parametrize("how", ["m.finish(m.with_rights_of(user, 5000, work))", "m._work_here_as(user, 5000, work)"])
def test_work_in_a_home_follows_links_only_with_the_users_own_permissions(tmp_path: Path, how: str) -> None:
    """~/.ssh is a link to a folder of root's: the user's rights do not reach it."""
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)
    theirs, home = tmp_path / "root-only", tmp_path / "home"
    theirs.mkdir(mode=0o700)
    home.mkdir(mode=0o700)
    os.chown(home, 5001, 5000)
    (home / ".ssh").symlink_to(theirs)
    root = tmp_path / "node"
    code = (
        f"import sys; sys.path[:0] = [{str(LIFECYCLE)!r}]; import importlib.util as u\n"
        f"s = u.spec_from_file_location('users', {str(LIFECYCLE / 'steps/30_users.py')!r}); m = u.module_from_spec(s)\n"
        "sys.modules['users'] = m; s.loader.exec_module(m)\n"
        f"user = m.User('alice', 5001, 'research', frozenset(), '/../home')\n"
        "work = lambda: m.furnish('alice', m.on_node(user.home), [])\n"
        f"sys.exit(m.run_step(lambda: {how}))"
    )
    root.mkdir()
    done = subprocess.run(
        ["/usr/bin/python3", "-c", code],
        env={**os.environ, "PROVISION_ROOT": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Permission denied" in done.stderr or "Operation not permitted" in done.stderr, done.stderr
    assert list(theirs.iterdir()) == []


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not on this machine: no key can be made")
def test_a_key_that_got_a_passphrase_or_broke_is_its_owner_s_affair(tmp_path: Path) -> None:
    users.furnish("alice", tmp_path, ["ssh-ed25519 LAPTOP"])
    key, authorized = tmp_path / ".ssh/id_ed25519", tmp_path / ".ssh/authorized_keys"
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)], check=True)
    before = authorized.read_text()
    users.furnish("alice", tmp_path, ["ssh-ed25519 LAPTOP"])
    assert authorized.read_text() == before
    key.write_text("cut off")
    users.furnish("alice", tmp_path, ["ssh-ed25519 LAPTOP"])
    assert authorized.read_text() == before
    key.with_name("id_ed25519.pub").unlink()
    users.furnish("alice", tmp_path, ["ssh-ed25519 LAPTOP"])
    assert [line for line in authorized.read_text().splitlines() if line[0] != "#"] == ["ssh-ed25519 LAPTOP"]


def two_users(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A cluster file with alice and bob on a node that has both, as whoever runs this test."""
    monkeypatch.setenv("PROVISION_ROOT", str(root))
    people = [User(name, os.geteuid(), "g", frozenset(), f"/fsx/home/{name}") for name in ("alice", "bob")]
    monkeypatch.setattr(users, "parse", lambda _: (people, {"g": os.getegid()}))
    monkeypatch.setattr(users, "commands_for", lambda *_: ())
    file = root / "cluster.json"
    file.write_text("{}")
    return str(file)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not on this machine: no key can be made")
def test_a_broken_home_of_one_user_does_not_lock_out_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = two_users(tmp_path, monkeypatch)
    (tmp_path / "fsx/home/alice").mkdir(parents=True)
    (tmp_path / "fsx/home/alice/.ssh").write_text("a file")
    users.make_users(file)
    said = capsys.readouterr().err
    assert " WARNING " in said and "the home /fsx/home/alice of alice: " in said and " ERROR " not in said
    assert (tmp_path / "fsx/home/bob/.ssh/authorized_keys").is_file()


def test_a_home_is_created_right_after_its_account_and_a_failure_blocks_no_other_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = two_users(tmp_path, monkeypatch)
    commands = [("groupadd", "bob"), ("useradd", "alice"), ("useradd", "bob"), ("usermod", "--lock", "left")]
    monkeypatch.setattr(users, "commands_for", lambda *_: commands)
    done: list[tuple[str, ...]] = []
    monkeypatch.setattr(users, "must_run", lambda *words: "" if words[0] == "getent" else done.append(words))

    def no_home(*_: object) -> None:
        done.append(("home",))
        raise users.StepError("no home")

    monkeypatch.setattr(users, "make_home", no_home)
    with pytest.raises(users.StepError, match="no home"):
        users.make_users(file)
    assert done == [commands[0], commands[3], commands[1], ("home",), commands[2]]


def test_a_home_that_never_responds_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "HOME_S", 0.1)
    me = User("me", os.geteuid(), "g", frozenset(), "/home")
    with pytest.raises(users.HomeError, match=r"the home /home of me: it did not end within 0\.1 s"):
        users.finish(users.with_rights_of(me, os.getegid(), lambda: time.sleep(60)))
    with pytest.raises(users.HomeError, match=r"the home /home of me: it did not end within 0\.1 s"):
        users._work_here_as(me, os.getegid(), lambda: time.sleep(60))


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not on this machine: no key can be made")
@pytest.mark.parametrize(
    "more", [["-t", "ed25519"], ["-t", "ecdsa"], ["-t", "rsa", "-N", "secret"], ["-t", "rsa", "-m", "PEM"]]
)
def test_the_public_part_of_a_key_is_what_ssh_keygen_says(tmp_path: Path, more: list[str]) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", str(key), "-C", "me", *more], check=True)
    expected = "" if "PEM" in more else key.with_name("key.pub").read_text().rsplit(" ", 1)[0]
    assert users.public_part(key.read_text()) == expected
    assert users.public_key(key).split()[:2] == key.with_name("key.pub").read_text().split()[:2]
    assert users.public_part(key.read_text()[:80]) == ""


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        (
            "/home rw - nfs4 fs-0a.fsx:/fsx rw",
            "the export squashes root, as NFS does unless told otherwise",
        ),
        ("/home rw - nfs fs-0a.fsx:/fsx rw", "put no_root_squash into the options of the volume's NFS export"),
        (
            "/home rw - lustre 10.1.0.99@tcp:/abc rw",
            "remove RootSquash, or put the nodes' network into NoSquashNids",
        ),
        ("/elsewhere rw - nfs4 x:/ rw", "who may write on the ext4 file system that it is on"),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="root that may not is made of root")
def test_a_file_system_that_squashes_root_is_reported_with_the_option_to_change(
    tmp_path: Path, mount: str, words: str
) -> None:
    """A root without the right to give files away: mkdir goes well, chown does not, as behind a squashing server."""
    (tmp_path / "mountinfo").write_text(f"23 1 259:1 / / rw - ext4 /dev/root rw\n96 23 0:54 / {mount}\n")
    paths = (LIFECYCLE, LIFECYCLE / "steps")
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]; users = __import__('30_users')\n"
        "user = users.User('alice', 5001, 'research', frozenset(), '/home/alice')\n"
        "sys.exit(users.run_step(lambda: users.make_home(user, 5000)))"
    )
    done = subprocess.run(
        [
            *("setpriv", "--bounding-set=-chown", "--inh-caps=-chown"),
            *("/usr/bin/python3", "-Bc", code),
            *map(str, paths),
        ],
        env={"PROVISION_ROOT": str(tmp_path), "PROVISION_MOUNTINFO": str(tmp_path / "mountinfo")},
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert "ERROR -c: root may not make /home/alice for alice (Operation not permitted); " in line and words in line
    assert list((tmp_path / "home").iterdir()) == []


def test_two_nodes_make_one_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_ROOT", str(tmp_path))
    me = User("me", os.geteuid(), "g", frozenset(), "/fsx/home/me")
    users.make_home(me, os.getegid())
    (tmp_path / "fsx/home/me/file").write_text("mine")
    users.make_home(me, os.getegid())
    assert [file.name for file in (tmp_path / "fsx/home").iterdir()] == ["me"]
    with pytest.raises(
        users.StepError, match=r"/fsx/home/me is not the home of you: it belongs to uid \d+; chown it to"
    ):
        users.make_home(User("you", os.geteuid() + 1, "g", frozenset(), "/fsx/home/me"), os.getegid())
