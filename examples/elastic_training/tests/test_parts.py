"""The example's parts without a process group: the order of the data, settings per world size, folders, the image."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import complete
from jobs import AGENT, EXAMPLE
from samples import Batch, ElasticLoader, micro_batches
from scale import Scale, scale_at
from train import learning_rate, parse

REQUIREMENTS = EXAMPLE.parents[1] / "requirements"

BASE = Scale(micro_batch_size=4, learning_rate=0.01)


def loaders(world_size: int, **settings: int) -> list[ElasticLoader]:
    values = {"dataset_size": 101, "global_batch_size": 8, "epochs": 2, "seed": 3, **settings}
    return [ElasticLoader(**values, rank=rank, world_size=world_size) for rank in range(world_size)]


@pytest.mark.parametrize("sizes", [(1, 1), (4, 2, 4), (3, 16, 5, 1), (7, 8)], ids=str)
def test_any_sequence_of_world_sizes_reads_the_same_batches(sizes: tuple[int, ...]) -> None:
    whole = [(batch.epoch, batch.indices.tolist()) for batch in loaders(1)[0]]
    state: dict[str, Any] | None = None
    read: list[tuple[int, list[int]]] = []
    for go, world_size in enumerate(sizes):
        ranks = loaders(world_size)
        for loader in ranks:
            if state is not None:
                loader.load_state_dict(state)
        for step, shares in enumerate(zip(*ranks, strict=True), start=1):
            assert max(len(share.indices) for share in shares) - min(len(share.indices) for share in shares) <= 1
            read.append((shares[0].epoch, [index for share in shares for index in share.indices.tolist()]))
            assert shares[0].size == len(read[-1][1])
            # Everyone's state is the same: a checkpoint needs only one of them.
            (state,) = {str(loader.state_dict()): loader.state_dict() for loader in ranks}.values()
            if step == 5 and go < len(sizes) - 1:
                break
    assert read == whole
    for epoch in range(2):
        assert sorted(index for at, indices in whole if at == epoch for index in indices) == list(range(101))
    assert len(whole) == loaders(1)[0].total_steps


def test_epochs_have_orders_of_their_own() -> None:
    batches = list(loaders(1)[0])
    first = [index for batch in batches if batch.epoch == 0 for index in batch.indices.tolist()]
    second = [index for batch in batches if batch.epoch == 1 for index in batch.indices.tolist()]
    assert first != second


def test_a_position_in_other_data_is_refused() -> None:
    state = loaders(1)[0].state_dict()
    (other,) = loaders(1, dataset_size=102, global_batch_size=16)
    with pytest.raises(ValueError) as refusal:
        other.load_state_dict(state)
    assert str(refusal.value).splitlines() == [
        "dataset_size: the checkpoint was written with 101, got 102; keep it, or start in an empty checkpoint folder",
        "global_batch_size: the checkpoint was written with 8, got 16; keep it, or start in an empty checkpoint folder",
    ]


@pytest.mark.parametrize(("size", "world_size", "micro"), [(32, 4, 4), (18, 4, 4), (5, 4, 1), (2, 4, 1), (33, 2, 16)])
def test_every_rank_takes_as_many_pieces_as_the_others(size: int, world_size: int, micro: int) -> None:
    shares = [torch.arange(size * rank // world_size, size * (rank + 1) // world_size) for rank in range(world_size)]
    pieces = [
        micro_batches(Batch(epoch=0, size=size, indices=share), micro_batch_size=micro, world_size=world_size)
        for share in shares
    ]
    assert len({len(of_rank) for of_rank in pieces}) == 1
    assert all(len(piece) <= micro for of_rank in pieces for piece in of_rank)
    assert torch.cat([piece for of_rank in pieces for piece in of_rank]).tolist() == list(range(size))


def test_settings_of_a_world_size_override_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    path.write_text('{"2": {"micro_batch_size": 8}, "16": {"learning_rate": 0.008}}', "utf-8")
    assert scale_at(2, BASE, path) == Scale(micro_batch_size=8, learning_rate=0.01)
    assert scale_at(16, BASE, path) == Scale(micro_batch_size=4, learning_rate=0.008)
    assert scale_at(4, BASE, path) == scale_at(4, BASE, None) == BASE


def test_the_examples_settings_are_those_of_the_jobs_sizes() -> None:
    job, settings = (EXAMPLE / "job.yaml").read_text("utf-8"), EXAMPLE / "scale_config.json"
    (of_a_node,) = re.findall(r"nprocPerNode: '(\d+)'", job)
    sizes = [int(of_a_node) * int(nodes) for nodes in re.findall(r"^      - (\d+)$", job, re.MULTILINE)]
    assert sizes == [16, 32, 64]
    assert [*json.loads(settings.read_text("utf-8"))] == [str(size) for size in sizes]
    assert [scale_at(size, BASE, settings).micro_batch_size for size in sizes] == [16, 16, 8]


def test_wrong_settings_are_all_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    path.write_text(
        '{"two": {}, "2": {"global_batch_size": 64, "micro_batch_size": 0}, "4": 8, "8": {"learning_rate": "1"}}',
        "utf-8",
    )
    with pytest.raises(ValueError) as refusal:
        scale_at(4, BASE, path)
    assert str(refusal.value).splitlines() == [
        "scale.json: [two]: must be a number of processes, 1 or more, such as 2",
        "scale.json: [2].global_batch_size: is no setting per world size; use one of learning_rate, micro_batch_size",
        "scale.json: [2].micro_batch_size: must be a whole number of samples, 1 or more, got 0",
        "scale.json: [4]: must be an object of settings, got 8",
        'scale.json: [8].learning_rate: must be more than 0, got "1"',
    ]


def test_the_schedule_rises_then_falls_to_nothing() -> None:
    rates = [learning_rate(step, peak=0.01, total_steps=40) for step in range(41)]
    assert max(rates) == rates[4] == pytest.approx(0.01)
    assert rates[:5] == sorted(rates[:5])
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert rates[40] == pytest.approx(0)


def test_what_is_unfinished_or_foreign_is_no_checkpoint(tmp_path: Path) -> None:
    for name in ("step-000000010", "step-000000005", "step-000000015.unfinished", "step-7", "lost+found"):
        (tmp_path / name).mkdir()
    assert list(complete(tmp_path)) == [5, 10]
    assert complete(tmp_path / "missing") == {}


def test_numbers_that_make_no_job_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--checkpoints=x", "--epochs=0"])
    assert "--epochs: must be 1 or more, got 0" in capsys.readouterr().err


# HYPERPOD_SIGNAL_COORDINATION, whether SIGUSR1 comes, and whether that is a scaling event.
ANSWERS = [
    ("distributed", True, True),
    ("distributed", False, False),
    ("disabled", True, False),
    ("", True, False),  # not set
    ("both", True, False),  # there is no such mode
]
ASK = """
import importlib, json, os, signal, sys

answers = []
for mode, comes in json.loads(sys.argv[2]):
    os.environ.pop("HYPERPOD_SIGNAL_COORDINATION", None)
    os.environ |= {"HYPERPOD_SIGNAL_COORDINATION": mode} if mode else {}
    agent = importlib.reload(importlib.import_module(sys.argv[1]))
    if comes:
        os.kill(os.getpid(), signal.SIGUSR1)
    answers.append([agent.elastic_event_detected(), agent.elastic_event_detected(signal.SIGTERM)])
print(json.dumps(answers))
"""


@pytest.mark.parametrize("module", ["local_elastic_agent", "hyperpod_elastic_agent.elastic_event_handler"])
def test_the_stand_in_answers_as_the_agent_does(module: str) -> None:
    if module != "local_elastic_agent" and not AGENT.exists():
        pytest.skip("no elastic agent: make test-elastic brings it")
    done = subprocess.run(
        [sys.executable, "-c", ASK, module, json.dumps([(mode, comes) for mode, comes, _ in ANSWERS])],
        env=os.environ | {"PYTHONPATH": f"{EXAMPLE}{os.pathsep}{AGENT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    # Only SIGUSR1 is a scaling event: the second answer is about SIGTERM.
    assert json.loads(done.stdout.splitlines()[-1]) == [[detected, False] for _, _, detected in ANSWERS]


AN_AGENT_THAT_LOADS_SLOWLY = """
import os, signal

os.kill(os.getpid(), signal.SIGUSR1)
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))


def elastic_event_detected():
    return bool(seen)
"""


def test_a_scaling_event_while_torch_loads_is_not_lost(tmp_path: Path) -> None:
    package = tmp_path / "hyperpod_elastic_agent"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "elastic_event_handler.py").write_text(AN_AGENT_THAT_LOADS_SLOWLY, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", "import train; print(train.elastic_event_detected())"],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{EXAMPLE}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_the_image_has_what_the_job_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (EXAMPLE / "Containerfile").read_text("utf-8")
    copied = re.findall(r"^COPY .*?((?:\S+\.(?:py|json) )+)", text, re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert names == {path.name for path in EXAMPLE.glob("*.py") if path.name != "app.py"} | {"scale_config.json"}
    # The agent takes SIGTERM from Kubernetes only as the container's first process: no shell around it.
    assert re.search(r'^ENTRYPOINT \["hyperpodrun", "--rdzv-backend=hyperpod"', text, re.MULTILINE)
    assert "HYPERPOD_SIGNAL_COORDINATION=distributed" in text
    command = next(line for line in text.splitlines() if line.startswith("CMD "))
    monkeypatch.setenv("CHECKPOINTS", "/checkpoints/elastic-training")  # as job.yaml does
    assert "--env CHECKPOINTS=/checkpoints/elastic-training" in (EXAMPLE / "README.md").read_text("utf-8")
    assert parse(json.loads(command.removeprefix("CMD "))).checkpoints == Path("/checkpoints/elastic-training")


def test_the_image_has_the_agent_that_the_tests_run() -> None:
    if not REQUIREMENTS.exists():
        pytest.skip("the example stands alone")
    agent = (REQUIREMENTS / "elastic-agent.lock").read_text("utf-8").partition("    #")[0]
    assert "--hash=sha256:" in agent
    assert agent in (EXAMPLE / "image.lock").read_text("utf-8")


def test_the_job_is_what_the_documented_command_writes() -> None:
    command = EXAMPLE.parents[1] / ".venv" / "bin" / "cdk-hyperpod"
    if not command.exists():
        pytest.skip("no cdk-hyperpod: make setup brings it")
    readme = (EXAMPLE / "README.md").read_text("utf-8")
    (documented,) = re.findall(r"^cdk-hyperpod (job render .*?) > job\.yaml$", readme, re.MULTILINE | re.DOTALL)
    arguments = shlex.split(documented.replace("\\\n", " "))
    done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == (EXAMPLE / "job.yaml").read_text("utf-8")
