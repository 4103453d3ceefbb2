"""The data, and an order of it that doesn't depend on how many processes read it.

A rank-local loader state (torchdata's StatefulDataLoader keeps one per rank and worker) says where *this rank's* share
stands, and means nothing once the shares are cut differently. Here the position is global: the epoch and how many of its
samples the whole job has consumed. The order of an epoch follows from the seed and the epoch alone, each step takes the
next `global_batch_size` of it, and only then is that batch cut between the ranks. So the state is three numbers, it is the same on
every rank, and any number of ranks can go on from it without a sample read twice or left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step's samples."""

    epoch: int
    size: int
    """Samples in the whole job's batch; less than the global batch size at the end of an epoch."""
    indices: torch.Tensor
    """The samples of this rank, as positions in the data set; none where the batch has fewer samples than the job ranks."""


class ElasticLoader:
    """Deals out the epochs' global batches, and goes on from its state with any number of ranks."""

    def __init__(
        self, *, dataset_size: int, global_batch_size: int, epochs: int, seed: int, rank: int, world_size: int
    ) -> None:
        self.dataset_size = dataset_size
        self.global_batch_size = global_batch_size
        self.epochs = epochs
        self.seed = seed
        self._rank = rank
        self._world_size = world_size
        self._epoch = 0
        self._consumed = 0

    @property
    def total_steps(self) -> int:
        """Steps from the first epoch to the last, whatever the number of ranks."""
        return self.epochs * -(-self.dataset_size // self.global_batch_size)

    @property
    def exhausted(self) -> bool:
        """Whether the last epoch is over."""
        return self._epoch >= self.epochs

    def __iter__(self) -> Iterator[Batch]:
        while not self.exhausted:
            epoch, start = self._epoch, self._consumed
            end = min(start + self.global_batch_size, self.dataset_size)
            # The position moves before the batch is handed out: what the state names has been, or is being, trained on, and a
            # checkpoint is only ever written after a step.
            self._epoch, self._consumed = (epoch + 1, 0) if end == self.dataset_size else (epoch, end)
            batch = self._order(epoch)[start:end]
            yield Batch(epoch=epoch, size=end - start, indices=batch[self._share(end - start)])

    def state_dict(self) -> dict[str, Any]:
        """The position, and what it is a position in."""
        return {
            "epoch": self._epoch,
            "consumed": self._consumed,
            "dataset_size": self.dataset_size,
            "global_batch_size": self.global_batch_size,
            "seed": self.seed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position; refuse one in another order of other data."""
        problems = [
            f"{name}: the checkpoint was written with {state[name]}, got {getattr(self, name)}; "
            "keep it, or start in an empty checkpoint folder"
            for name in ("dataset_size", "global_batch_size", "seed")
            if state[name] != getattr(self, name)
        ]
        if problems:
            raise ValueError("\n".join(problems))
        self._epoch, self._consumed = state["epoch"], state["consumed"]

    def _order(self, epoch: int) -> torch.Tensor:
        # Computed again at each step: for a data set of a size where that matters, keep it for the epoch.
        return torch.randperm(self.dataset_size, generator=torch.Generator().manual_seed(self.seed * 1_000_003 + epoch))

    def _share(self, size: int) -> slice:
        # Contiguous shares that differ by one sample at most: the global batch stays whole where the ranks don't divide it.
        return slice(size * self._rank // self._world_size, size * (self._rank + 1) // self._world_size)


def micro_batches(batch: Batch, *, micro_batch_size: int, world_size: int) -> tuple[torch.Tensor, ...]:
    """This rank's samples in pieces of at most `micro_batch_size`; as many pieces on each rank, whatever its share.

    Sharded layers gather their weights at each forward pass, so a rank with one piece less would leave the others waiting.
    """
    largest_share = -(-batch.size // world_size)
    return torch.tensor_split(batch.indices, -(-largest_share // micro_batch_size))


class SyntheticTask:
    """A classification task that the example makes itself: random points, labelled by a random linear teacher."""

    features = 16
    classes = 4

    def __init__(self, size: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._points = torch.randn(size, self.features, generator=generator)
        self._labels = (self._points @ torch.randn(self.features, self.classes, generator=generator)).argmax(dim=1)

    def __len__(self) -> int:
        return len(self._labels)

    def take(self, indices: torch.Tensor, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """The points and labels at these positions."""
        return self._points[indices].to(device), self._labels[indices].to(device)
