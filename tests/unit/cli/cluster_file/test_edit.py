"""`cdk-hyperpod nodes --write` on files that are not plain: nothing is written but what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdk_hyperpod_local.hyperpod.samples import group
from helpers.cli.cluster_files import FILE
from unit.cli.conftest import FakeAws, Run

MERGED = FILE.replace("{name: work,", "&w {name: work,") + (
    "  - {<<: *w, name: second}\n"  # its count is the first one's
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(MERGED, id="a merge"),
        pytest.param(FILE.replace("name: work", "name: other"), id="no such group in the file"),
    ],
)
def test_a_file_where_something_else_would_change_is_not_written(text: str, fake_aws: FakeAws, run: Run) -> None:
    file = Path("cluster.yaml")
    file.write_text(text)
    fake_aws.cluster(group("work", 4))
    fake_aws.quiet()

    status, out, err = run("nodes", fake_aws.nodes("work")[0], "--write")
    assert (status, out) == (1, "") and file.read_text() == text
    assert err.startswith("nothing was written: cluster.yaml shares text ") and "Edit it by hand" in err
    assert "instance_count of work by 1," in err and err.count("\n") == 1


def test_a_file_keeps_its_line_ends(fake_aws: FakeAws, run: Run) -> None:
    file = Path("cluster.yaml")
    file.write_bytes(FILE.replace("\n", "\r\n").encode())
    fake_aws.cluster(group("work", 4))
    fake_aws.quiet()
    node = fake_aws.nodes("work")[0]

    assert run("nodes", node, "--write")[0] == 0
    written = (
        FILE.replace("instance_count: 4", "instance_count: 3") + f"scale_down:\n  nodes_to_delete:\n    - {node}\n"
    )
    assert file.read_bytes() == written.replace("\n", "\r\n").encode()


LISTED = "scale_down:\n  nodes_to_delete:\n    - i-0aaaaaaaaaaaaaaaa  # old\n"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        pytest.param(
            "scale_down:\n  nodes_to_delete: []   # ids\n  # keep at five\n  max_nodes: 5\n",
            "scale_down:\n  nodes_to_delete:      # ids\n    - NEW\n  # keep at five\n  max_nodes: 5\n",
            id="of the next setting",
        ),
        pytest.param(
            f"{LISTED}\n# after\nremoval: retain\n",
            f"{LISTED}    - NEW\n\n# after\nremoval: retain\n",
            id="after the list",
        ),
        pytest.param(
            "scale_down:\n  max_nodes: 5  # five\n# after\nremoval: retain\n",
            "scale_down:\n  max_nodes: 5  # five\n  nodes_to_delete:\n    - NEW\n# after\nremoval: retain\n",
            id="after a list that was not there",
        ),
        pytest.param(
            "scale_down: {max_nodes: 5} # five\n# after\nremoval: retain\n",
            "scale_down: {max_nodes: 5, nodes_to_delete: [NEW]} # five\n# after\nremoval: retain\n",
            id="in braces",
        ),
    ],
)
def test_a_comment_that_follows_the_list_goes_on_following_it(
    text: str, written: str, fake_aws: FakeAws, run: Run
) -> None:
    file = Path("cluster.yaml")
    file.write_text(FILE + text)
    fake_aws.cluster(group("work", 4))
    fake_aws.quiet()
    node = fake_aws.nodes("work")[0]

    assert run("nodes", node, "--write")[0] == 0
    assert file.read_text() == FILE.replace("instance_count: 4", "instance_count: 3") + written.replace("NEW", node)
