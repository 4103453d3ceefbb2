"""A simulated SageMaker HyperPod control plane: documented behaviour, its own clock, and faults on request.

`api.py` receives every call. It needs no engine: tests use it in their own process, through `HyperPod` and its
`client`.
May import: nothing.
"""

from .api import ACCOUNT, OPERATIONS, REGION, HyperPod
from .behaviour import Behaviour, Timings
from .cfn_handler import ClusterHandler, Progress, replacement_reasons
from .client import Client
from .clock import Clock, ManualClock, ScaledClock, SystemClock
from .errors import ApiError, CallerKilled, LostReplyError
from .faults import Faults
from .journal import MUTATING, Call
from .json_protocol import handle_json
from .notices import BusEvent, LogRecord
from .outside import Outside
from .state import Fault, Node, Place, Plan, ReImage, Termination

__all__ = [
    "ACCOUNT",
    "MUTATING",
    "OPERATIONS",
    "REGION",
    "ApiError",
    "Behaviour",
    "BusEvent",
    "Call",
    "CallerKilled",
    "Client",
    "Clock",
    "ClusterHandler",
    "Fault",
    "Faults",
    "HyperPod",
    "LogRecord",
    "LostReplyError",
    "ManualClock",
    "Node",
    "Outside",
    "Place",
    "Plan",
    "Progress",
    "ReImage",
    "ScaledClock",
    "SystemClock",
    "Termination",
    "Timings",
    "handle_json",
    "replacement_reasons",
]
