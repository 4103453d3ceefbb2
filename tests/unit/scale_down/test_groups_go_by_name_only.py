"""A group ends only where the file names it as to be deleted; the controller's and the last one never do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdk_hyperpod_local.hyperpod.cfn_handler import VanishedGroups
from helpers.scale_down.scenarios import SEEDS, VANISHED, behaviours, ended, stack
from helpers.scale_down.stack import Behaviour, Template, group


@given(
    behaviour=behaviours(),
    keep=st.integers(0, 4),
    drop=st.integers(0, 4),
    limit=st.integers(0, 4),
    seed=SEEDS,
    vanished=VANISHED,
)
def test_by_name_only_and_never_beyond_the_limit(
    behaviour: Behaviour, keep: int, drop: int, limit: int, seed: int, vanished: VanishedGroups
) -> None:
    train = stack(Template(groups=(group("p5", keep), group("old", drop))), behaviour, seed, vanished=vanished)
    assert train.deploy(Template(groups=(group("p5", keep),))) == "rolled back"
    assert not ended(train), "an accident is refused before anything happened"
    template = Template(groups=(group("p5", keep),), groups_to_delete=("old",), max_nodes=limit)
    if drop > limit:
        assert train.deploy(template) == "rolled back"
        assert not ended(train)
        return
    assert train.deploy(template) == "complete", train.reasons
    assert {item.cause for item in train.model.terminations} <= {"group-deleted"}
    live = train.model.cluster("train").groups
    assert "old" not in live or live["old"].status == "Deleting"
    assert {"controller", "p5"} <= live.keys()
    # The tombstone stays in the file, and does nothing.
    changed = train.model.changes(principal="lambda")
    assert train.deploy(Template(groups=template.groups, groups_to_delete=("old",), tags={"team": "a"})) == "complete"
    assert train.model.changes(principal="lambda") == changed


@given(behaviour=behaviours(), vanished=VANISHED, seed=SEEDS, controller_too=st.booleans())
def test_neither_the_controller_nor_the_last_group(
    behaviour: Behaviour, vanished: VanishedGroups, seed: int, controller_too: bool
) -> None:
    train = stack(Template(groups=(group("p5", 2),)), behaviour, seed, vanished=vanished)
    template = Template(groups=(), groups_to_delete=("p5", "controller") if controller_too else ("controller",))
    assert train.deploy(template) == "rolled back"
    assert train.status == "UPDATE_ROLLBACK_COMPLETE", train.reasons
    assert not ended(train)
    assert train.model.cluster("train").groups.keys() == {"controller", "p5"}
