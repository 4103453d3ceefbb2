"""train.py on CPU: real processes, real collectives, real checkpoints; `make test-elastic`."""

import signal
from collections import Counter
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import complete
from jobs import EPOCHS, EXAMPLE, HELD_TRAINING, SAMPLES, SETTINGS, STEPS, Hold, Process, environment, torchrun
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

LOSS_TOLERANCE = 1e-4
WEIGHT_TOLERANCE = 1e-4
"""Sums of the same float32 gradients in another order differ; over 32 steps of AdamW by less than this."""


@dataclass(frozen=True)
class Run:
    """A job from the first step to the last, in one or several goes."""

    goes: list[Process]
    checkpoints: Path

    def trajectory(self) -> list[dict[str, Any]]:
        """The step lines that made the final weights: of a step taken twice, because its checkpoint was lost, the last."""
        steps = {line["step"]: line for go in self.goes for line in go.named("step")}
        return [steps[step] for step in sorted(steps)]

    def losses(self) -> list[float]:
        """The mean loss of each step."""
        return [line["loss"] for line in self.trajectory()]

    def weights(self, folder: Path) -> dict[str, torch.Tensor]:
        """The weights of the last checkpoint, made whole."""
        whole = folder / "whole.pt"
        dcp_to_torch_save(list(complete(self.checkpoints).values())[-1], whole)
        model: dict[str, torch.Tensor] = torch.load(whole, weights_only=True)["job"]["model"]
        return model


def assert_each_sample_once_per_epoch(run: Run) -> None:
    lines = run.trajectory()
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    for epoch in range(EPOCHS):
        seen = Counter(
            sample for line in lines if line["epoch"] == epoch for share in line["samples"] for sample in share
        )
        assert seen == Counter(range(SAMPLES))


def assert_same_training(run: Run, other: Run, folder: Path) -> None:
    assert run.losses() == pytest.approx(other.losses(), abs=LOSS_TOLERANCE)
    ours, theirs = run.weights(folder), other.weights(folder)
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], rtol=0, atol=WEIGHT_TOLERANCE)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One process, train.py as it stands, from start to end."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    command = [*torchrun(1, EXAMPLE / "train.py"), f"--checkpoints={folder}", *SETTINGS]
    with Process(command, environment()) as go:
        assert go.wait() == 0
    return Run([go], folder)


@pytest.fixture(scope="module")
def rescaled(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """4 processes until a scaling event in step 11, 2 until an eviction in step 20, 4 to the end."""
    folder, hold = tmp_path_factory.mktemp("rescaled"), Hold(tmp_path_factory.mktemp("hold"))

    def go(processes: int, **holds: str) -> Process:
        return Process([*torchrun(processes, HELD_TRAINING), f"--checkpoints={folder}", *SETTINGS], hold.env(**holds))

    with go(4, saving="10,11") as first:
        first.started(4)
        # The event comes while the checkpoint of step 10 is being written, and again during the one that it leads to; one rank
        # gets it, and not the one that writes the metadata.
        hold.reached("saving-10")
        first.signal(2, signal.SIGUSR1)
        hold.release("saving-10")
        hold.reached("saving-11")
        first.signal(2, signal.SIGUSR1)
        first.signal(0, signal.SIGUSR1)
        hold.release("saving-11")
        assert first.wait() == 0
    with go(2, steps="20") as second:
        second.started(2)
        hold.reached("step-20")
        second.signal(1, signal.SIGTERM)
        hold.release("step-20")
        # torchrun's own status for workers that failed; their 143 is in its output.
        assert second.wait() == 1
    with go(4) as third:
        assert third.wait() == 0
    return Run([first, second, third], folder)


def test_uninterrupted_training_learns_and_sees_each_sample_once(uninterrupted: Run) -> None:
    losses = uninterrupted.losses()
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
    assert_each_sample_once_per_epoch(uninterrupted)
    assert uninterrupted.goes[0].named("finished") == [{"event": "finished", "step": STEPS}]


def test_a_scaling_event_ends_every_rank_after_a_checkpoint(rescaled: Run) -> None:
    first = rescaled.goes[0]
    assert sorted(line["rank"] for line in first.named("elastic_event")) == [0, 1, 2, 3]
    assert {line["step"] for line in first.named("elastic_event")} == {11}
    # The one that was being written when the event came is whole, and so is the event's own.
    assert [line["step"] for line in first.named("checkpoint")] == [5, 10, 11]
    assert first.named("step")[-1]["step"] == 11


def test_an_eviction_ends_every_rank_after_a_checkpoint_and_not_as_success(rescaled: Run) -> None:
    second = rescaled.goes[1]
    assert sorted(line["rank"] for line in second.named("terminated")) == [0, 1]
    assert {line["step"] for line in second.named("terminated")} == {20}
    assert "exitcode  : 143" in "".join(second.output)


def test_another_number_of_ranks_goes_on_where_the_last_one_stopped(rescaled: Run) -> None:
    resumed = [{line["resumed_from"] for line in go.named("started")} for go in rescaled.goes]
    assert resumed == [{None}, {"step-000000011"}, {"step-000000020"}]
    assert [go.named("step")[0]["step"] for go in rescaled.goes] == [1, 12, 21]
    assert [{line["world_size"] for line in go.named("step")} for go in rescaled.goes] == [{4}, {2}, {4}]


def test_no_sample_is_lost_or_repeated_by_rescaling(rescaled: Run) -> None:
    assert_each_sample_once_per_epoch(rescaled)
    # Nothing was done twice either: each step was taken in one of the goes only.
    assert sum(len(go.named("step")) for go in rescaled.goes) == STEPS


def test_rescaling_changes_neither_the_loss_nor_the_weights(rescaled: Run, uninterrupted: Run, tmp_path: Path) -> None:
    assert_same_training(rescaled, uninterrupted, tmp_path)


def test_the_global_batch_stays_by_accumulation(rescaled: Run) -> None:
    full = [line for line in rescaled.trajectory() if sum(map(len, line["samples"])) == 32]
    # tests/scale_config.json: at 2 ranks pieces of 8; at 4 ranks the default of 4.
    assert {(line["world_size"], line["accumulation_steps"]) for line in full} == {(4, 2), (2, 2)}
    assert {(line["world_size"], tuple(map(len, line["samples"]))) for line in full} == {(4, (8,) * 4), (2, (16,) * 2)}
    shares = [tuple(map(len, line["samples"])) for line in rescaled.trajectory() if line not in full]
    assert shares == [(9, 9), (4, 5, 4, 5)]


def test_only_the_newest_checkpoints_stay(rescaled: Run) -> None:
    assert sorted(path.name for path in rescaled.checkpoints.iterdir()) == ["step-000000030", "step-000000032"]


def test_a_killed_job_heals_from_its_last_whole_checkpoint(uninterrupted: Run, tmp_path: Path) -> None:
    folder, hold = tmp_path / "checkpoints", Hold(tmp_path / "hold")
    command = [f"--checkpoints={folder}", *SETTINGS]
    half = folder / "step-000000010.unfinished"
    with Process([*torchrun(2, HELD_TRAINING, restarts=1), *command], hold.env(saving="10", steps="13")) as killed:
        killed.started(2)
        hold.reached("saving-10")
        assert sorted(path.suffix for path in half.iterdir()) == [".distcp", ".distcp"]
        assert list(complete(folder)) == [5]
        # One rank, in the middle of a save. The launcher starts both again, and they take the checkpoint before that.
        killed.signal(0, signal.SIGKILL)
        hold.release("saving-10")
        hold.reached("step-13")
        assert not half.exists()
        # All of them, between two steps, and no restart is left.
        killed.kill_workers()
        assert killed.wait() == 1
    assert [line["resumed_from"] for line in killed.named("started")] == [None, None, *["step-000000005"] * 2]
    taken = [line["step"] for line in killed.named("step")]
    assert taken == [*range(1, 11), *range(6, 13)]

    # 3 ranks: neither the global batch nor the checkpoint's shards divide by it.
    with Process([*torchrun(3, EXAMPLE / "train.py"), *command], environment()) as resumed:
        assert resumed.wait() == 0
    assert {line["resumed_from"] for line in resumed.named("started")} == {"step-000000010"}
    assert [line["step"] for line in resumed.named("step")] == list(range(11, STEPS + 1))
    run = Run([killed, resumed], folder)
    assert_each_sample_once_per_epoch(run)
    assert_same_training(run, uninterrupted, tmp_path)
    # What was lost and taken again was the same work: the same samples, the same loss.
    final = {line["step"]: line for line in run.trajectory()}
    for line in killed.named("step"):
        assert line["loss"] == pytest.approx(final[line["step"]]["loss"], abs=LOSS_TOLERANCE)
        assert sorted(chain(*line["samples"])) == sorted(chain(*final[line["step"]]["samples"]))


def test_losses_have_no_jump_where_a_go_ends(rescaled: Run) -> None:
    losses = rescaled.losses()
    steps = [abs(after - before) for before, after in pairwise(losses)]
    seams = [steps[step - 1] for step in (11, 20)]
    assert max(seams) <= max(steps[index] for index in range(len(steps)) if index + 1 not in (11, 20))
