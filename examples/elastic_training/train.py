"""A small training job that may lose or gain replicas at any step.

After each step all ranks agree whether the operator wants another number of replicas. If so they write a sharded checkpoint and exit, the
operator starts them again in the new number, and they go on: same global batch, same order of the data, same learning rate.
Rank 0 prints one JSON line per step.
"""

import signal

# Importing the agent imports torch, and then installs its handler of SIGUSR1; until then a scaling event would end the process. So
# the signal waits until the handler is there.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
try:
    from hyperpod_elastic_agent.elastic_event_handler import elastic_event_detected  # type: ignore[import-not-found]
except ImportError:  # the agent excludes this torch, or this is a laptop
    from local_elastic_agent import elastic_event_detected
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})

import argparse
import datetime
import json
import math
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from checkpoints import Checkpoints
from samples import Batch, ElasticLoader, SyntheticTask, micro_batches
from scale import Scale, scale_at
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

TERMINATED = 128 + signal.SIGTERM
"""The exit status after SIGTERM. Not 0: the agents take 0 from every worker for a finished job."""

_sigterm: list[int] = []


def _remember_sigterm(signum: int, _frame: FrameType | None) -> None:
    _sigterm.append(signum)


class Job(Stateful):
    """All that a checkpoint holds: model, optimizer, position in the data, steps taken."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, loader: ElasticLoader) -> None:
        self.model = model
        self.optimizer = optimizer
        self.loader = loader
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        """The state, each rank's shards of it, under names that don't depend on the number of ranks."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "loader": self.loader.state_dict(), "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state that was saved by any number of ranks."""
        self.loader.load_state_dict(state["loader"])
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = state["step"]


def sharded_model(device: torch.device, seed: int) -> nn.Module:
    """A small network; each rank keeps its shard of every layer."""
    # The same on every rank, from the seed. A model that doesn't fit one device starts on the meta device instead.
    torch.manual_seed(seed)
    width = 32
    model = nn.Sequential(
        nn.Linear(SyntheticTask.features, width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, SyntheticTask.classes),
    ).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def learning_rate(step: int, *, peak: float, total_steps: int) -> float:
    """Warm-up over the first tenth, then a cosine to zero. A function of the step alone: nothing to save, nothing to rescale."""
    warm_up = max(1, total_steps // 10)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, total_steps - warm_up)))


def train_step(job: Job, task: SyntheticTask, batch: Batch, scale: Scale, device: torch.device) -> tuple[float, int]:
    """One optimizer step over the global batch; its mean loss, and in how many pieces each rank took its share."""
    world_size = dist.get_world_size()
    pieces = micro_batches(batch, micro_batch_size=scale.micro_batch_size, world_size=world_size)
    loss_sum = torch.zeros(1, device=device)
    for number, indices in enumerate(pieces, start=1):
        # Gradients are summed here and travel once, with the last piece.
        job.model.set_requires_gradient_sync(number == len(pieces))  # type: ignore[operator]
        points, labels = task.take(indices, device)
        loss = nn.functional.cross_entropy(job.model(points), labels, reduction="sum")
        # Sums, not means: shares may differ by a sample. The ranks' gradients are averaged, hence the factor.
        (loss * world_size / batch.size).backward()  # type: ignore[no-untyped-call]
        loss_sum += loss.detach()
    rate = learning_rate(job.step, peak=scale.learning_rate, total_steps=job.loader.total_steps)
    for group in job.optimizer.param_groups:
        group["lr"] = rate
    job.optimizer.step()
    job.optimizer.zero_grad()
    job.step += 1
    dist.all_reduce(loss_sum)
    return loss_sum.item() / batch.size, len(pieces)


def terminated_anywhere(device: torch.device) -> bool:
    """Whether any rank got SIGTERM: its pod is being evicted or deleted. A collective."""
    flag = torch.tensor([float(bool(_sigterm))], device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item() > 0)


def emit(event: str, **values: Any) -> None:
    """One JSON line, in one write: the ranks share the output."""
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def train(options: argparse.Namespace, device: torch.device) -> int:
    """Train from the newest checkpoint to the end, or to an event; the exit status."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    base = Scale(micro_batch_size=options.micro_batch_size, learning_rate=options.learning_rate)
    scale = scale_at(world_size, base, options.scale_config)
    task = SyntheticTask(options.samples, options.seed)
    model = sharded_model(device, options.seed)
    job = Job(
        model,
        torch.optim.AdamW(model.parameters(), lr=scale.learning_rate),
        ElasticLoader(
            dataset_size=len(task),
            global_batch_size=options.global_batch_size,
            epochs=options.epochs,
            seed=options.seed,
            rank=rank,
            world_size=world_size,
        ),
    )
    checkpoints = Checkpoints(options.checkpoints, keep=options.keep)
    resumed_from = checkpoints.load_latest(job)
    emit(
        "started",
        rank=rank,
        pid=os.getpid(),
        world_size=world_size,
        step=job.step,
        resumed_from=resumed_from and resumed_from.name,
        elastic_events=elastic_event_detected.__module__,
        coordination=os.environ.get("HYPERPOD_SIGNAL_COORDINATION", "disabled"),
    )

    for batch in job.loader:
        loss, pieces = train_step(job, task, batch, scale, device)
        seen: list[Any] = [None] * world_size
        if options.log_samples:
            dist.all_gather_object(seen, batch.indices.tolist())
        if rank == 0:
            line = {
                "step": job.step,
                "epoch": batch.epoch,
                "loss": loss,
                "world_size": world_size,
                "accumulation_steps": pieces,
            }
            emit("step", **line, **({"samples": seen} if options.log_samples else {}))

        # Both on every rank at every step: they are collectives.
        elastic, terminated = elastic_event_detected(), terminated_anywhere(device)
        leaving = elastic or terminated
        if leaving or job.loader.exhausted or job.step % options.checkpoint_every == 0:
            seconds = checkpoints.save(job, job.step)
            if rank == 0:
                emit("checkpoint", step=job.step, seconds=round(seconds, 3))
        if leaving:
            emit("elastic_event" if elastic else "terminated", rank=rank, step=job.step)
            return 0 if elastic else TERMINATED

    if rank == 0:
        emit("finished", step=job.step)
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=os.environ.get("CHECKPOINTS"),
        required="CHECKPOINTS" not in os.environ,
        help="folder of this job alone, on a file system that all nodes share (default: the environment's CHECKPOINTS)",
    )
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps between checkpoints (default: 50)")
    parser.add_argument("--keep", type=int, default=2, help="complete checkpoints to keep (default: 2)")
    parser.add_argument("--samples", type=int, default=4096, help="size of the data set (default: 4096)")
    parser.add_argument("--epochs", type=int, default=2, help="passes over it (default: 2)")
    parser.add_argument(
        "--global-batch-size", type=int, default=32, help="samples per step of the whole job (default: 32)"
    )
    parser.add_argument("--micro-batch-size", type=int, default=4, help="samples a rank computes at once (default: 4)")
    parser.add_argument("--learning-rate", type=float, default=0.01, help="peak learning rate (default: 0.01)")
    parser.add_argument("--scale-config", type=Path, help="JSON file of settings per world size (default: none)")
    parser.add_argument("--seed", type=int, default=1, help="of the model, the data and its order (default: 1)")
    parser.add_argument("--log-samples", action="store_true", help="add each rank's sample numbers to the step lines")
    parser.add_argument(
        "--collective-timeout-s", type=int, default=600, help="seconds to wait for a lost rank (default: 600)"
    )
    options = parser.parse_args(arguments)
    for name in ("checkpoint_every", "keep", "samples", "epochs", "global_batch_size", "micro_batch_size"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: must be 1 or more, got {getattr(options, name)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Set up the process group, train, take it down."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, _remember_sigterm)
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        # gloo beside nccl: the checkpoint's plans are Python objects and need no GPU.
        backend = "cpu:gloo,cuda:nccl"
    else:
        device, backend = torch.device("cpu"), "gloo"
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=options.collective_timeout_s))
    try:
        return train(options, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
