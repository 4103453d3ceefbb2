"""What `hyperpod_elastic_agent.elastic_event_handler` does, for machines where the agent can't be installed.

The agent's package wants torch >=2.4,<2.12; with a newer torch, or on a laptop without the operator, train.py imports this
module instead. Same name, same contract, as version 1.1.3 of the agent has it: SIGUSR1 is remembered for the rest of the
process, HYPERPOD_SIGNAL_COORDINATION says whether it counts (`distributed`) or not (`disabled`, the default), and a signal
to one rank is an event for all of them. It is no launcher and it talks to no operator.
"""

import logging
import os
import signal
from types import FrameType

import torch
import torch.distributed as dist

_log = logging.getLogger(__name__)
_received: set[int] = set()


def _remember(signum: int, _frame: FrameType | None) -> None:
    _received.add(signum)


# At import, as the agent does; train.py holds SIGUSR1 back until then.
signal.signal(signal.SIGUSR1, _remember)

_mode = os.environ.get("HYPERPOD_SIGNAL_COORDINATION", "disabled").lower()
if _mode not in {"disabled", "distributed"}:
    _log.warning(
        "HYPERPOD_SIGNAL_COORDINATION: must be disabled or distributed, got %r; scaling events are ignored", _mode
    )
    _mode = "disabled"


def elastic_event_detected(sig: int = signal.SIGUSR1) -> bool:
    """Whether any rank has been told to stop for another number of replicas. A collective: call it on every rank."""
    if sig != signal.SIGUSR1 or _mode == "disabled":
        return False
    here = sig in _received
    if not dist.is_initialized():
        return here
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    anywhere = torch.tensor([float(here)], device=device)
    dist.all_reduce(anywhere, op=dist.ReduceOp.MAX)
    return bool(anywhere.item() > 0)
