"""`cdk-hyperpod drain --release`: end the hold of a patch that is not running any more."""

from __future__ import annotations

from dataclasses import replace

from .. import live, tables
from .drains import open_drains
from .model import LEASE_S
from .reading import Reader
from .run_record import choose_run, local_record, new_run


def release(target: live.Target) -> None:
    """Release every node that a run of `patch` holds. Raises AnotherRunError while one is running."""
    assert target.config is not None
    described = live.describe(target)
    account = str(described["ClusterArn"]).split(":")[4]
    with local_record(account, target.region, target.name) as local:
        drains = open_drains(target, target.config, described)
        made = new_run(local)
        run = drains.claim(
            lambda shared, now: choose_run(shared, local.read(), replace(made, until=now + LEASE_S), now)
        )
        drains.release(run, finished=True)
        local.write(None)
    tables.say("released: no node is held for a patch")
    for group in Reader(target).groups(described):
        if group.is_updating:
            tables.complain(
                f"{group.name}: HyperPod replaces images there. Jobs that begin now may end with the old image"
            )
