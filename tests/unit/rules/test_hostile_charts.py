"""Charts that somebody made to do harm: each is one message, writes nothing anywhere, and takes little memory."""

from __future__ import annotations

import gzip
import io
import os
import resource
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cdk_hyperpod.kubernetes.helm_chart import MAX_CHART_BYTES, MAX_CHART_FILES, HelmChart, InvalidChart
from cdk_hyperpod.rules.charts import check_chart

ABOUT = b"name: c\n"
MAX_MEMORY = 300_000_000


def packed(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """An archive with a good Chart.yaml and these."""
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w") as archive:
        for member in (("c/Chart.yaml", ABOUT), *members):
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return gzip.compress(unpacked.getvalue())


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def message(path: Path) -> str:
    """The one line that a user reads."""
    (found,) = check_chart(path, "chart", digest=f"sha256:{'0' * 64}", image_registry=None, neuron=False)
    assert found.path == "eks.dependencies_chart" and str(found).isprintable()
    return found.problem


def of_archive(content: bytes, folder: Path) -> str:
    (folder / "chart.tgz").write_bytes(content)
    return message(folder / "chart.tgz")


# -- where files would land -------------------------------------------------------------------------------------------

NAMES = [
    "c//tmp/x", "c/../x", "c/../../x", "c/a/../../../x", "/tmp/x", "../x", "c/./x", "c//x", "c", "", "c/..", "c/x/..",
    "c\\..\\..\\x", "c/..\\..\\x", "c/C:/x", "c/C:x", "c/a\nb", "c/a\x1b[31m", "c/" + "x" * 256, "c/" + "d/" * 600 + "x",
    "c/charts/..-1.tgz", "c/charts/.-1.tgz",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:30])
def test_a_path_out_of_the_charts_folder_is_refused(name: str, tmp_path: Path) -> None:
    content = packed() if name.endswith(".tgz") else b"x"

    assert "is not a path below the chart's folder" in of_archive(packed((name, content)), tmp_path)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(gzip.decompress(packed(("c/caf", b"x"))).replace(b"c/caf\0", b"c/ca\xff\0"))
    # The header's checksum, as tar computes it, no longer fits: make it fit.
    unpacked = bytearray(gzip.decompress(content))
    at = unpacked.index(b"c/ca\xff")
    header = unpacked[at : at + 512]
    header[148:156] = b" " * 8
    unpacked[at + 148 : at + 156] = b"%06o\0 " % sum(header)

    assert "is not a path below the chart's folder" in of_archive(gzip.compress(unpacked), tmp_path)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE], ids=str
)
def test_links_and_devices_of_an_archive_are_refused(kind: bytes, tmp_path: Path) -> None:
    assert (
        of_archive(packed(special("c/x", kind, "/etc/passwd")), tmp_path)
        == "'chart' is not a Helm chart (c/x is a link, a device or a sparse file)"
    )


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        pytest.param([("c/x", b"1"), ("c/x", b"2")], "c/x is in it twice", id="twice"),
        pytest.param(
            [("c/x", b"1"), ("c/X", b"2")],
            "x and X are one file on a disk that knows no upper and lower case",
            id="twice on another machine",
        ),
        pytest.param([("c/x", b"1"), ("c/x/y", b"2")], "x is a file and a folder", id="a file and a folder"),
        pytest.param(
            [(f"c/charts/a-{n}.tgz", packed()) for n in (1, 2)], "charts/a/Chart.yaml is in it twice", id="two archives"
        ),
    ],
)
def test_files_that_would_overwrite_each_other_are_refused(
    members: list[tuple[str, bytes]], reason: str, tmp_path: Path
) -> None:
    assert f"'chart' is not a Helm chart ({reason})" == of_archive(packed(*members), tmp_path)


def test_a_chart_is_written_inside_its_folder_only(tmp_path: Path) -> None:
    (tmp_path / "chart.tgz").write_bytes(packed(("c/templates/x", b"1"), ("c/charts/a-1.tgz", packed(("c/y", b"2")))))

    HelmChart(tmp_path / "chart.tgz").write(tmp_path / "out" / "chart")

    written = {
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert written == {"chart/Chart.yaml", "chart/charts/a/Chart.yaml", "chart/charts/a/y", "chart/templates/x"}


# -- folders ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chart = tmp_path / "chart"
    chart.mkdir()
    (chart / "Chart.yaml").write_bytes(ABOUT)
    (tmp_path / "secret").write_text("mine")
    return chart


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        pytest.param("../secret", "x is a link out of the chart's folder", id="out"),
        pytest.param("/dev/zero", "x is a link out of the chart's folder", id="device"),
        pytest.param("..", "x is a link to a folder: put the folder itself there", id="folder"),
        pytest.param("x", "Too many levels of symbolic links", id="itself"),
        pytest.param("nothing", "'chart'", id="nothing"),
    ],
)
def test_a_link_out_of_a_folder_is_refused(folder: Path, target: str, reason: str) -> None:
    (folder / "x").symlink_to(target)

    assert reason in message(folder)


def test_a_link_inside_of_a_folder_is_followed(folder: Path) -> None:
    (folder / "x").symlink_to("Chart.yaml")

    assert HelmChart(folder).files["x"] == ABOUT


def test_a_pipe_does_not_wait_for_a_writer(folder: Path) -> None:
    os.mkfifo(folder / "x")

    assert "it is neither a file nor a folder" in message(folder)
    assert "it is neither a file nor a folder" in message(folder / "x")


# -- Chart.yaml -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        pytest.param(b"- name: c\n", "Chart.yaml names no chart", id="list"),
        pytest.param(b"", "Chart.yaml names no chart", id="nothing"),
        pytest.param(b"name: [c]\n", "Chart.yaml names no chart", id="name"),
        pytest.param(
            b"name: c\nx: !!python/name:os.system\n",
            "Chart.yaml is not valid YAML in line 2",
            id="tag",
        ),
        pytest.param(b"x: " + b"[" * 5000, "Chart.yaml is not valid YAML in line 1", id="deep"),
        pytest.param(b"\xff", "Chart.yaml is not valid YAML in line 1", id="bytes"),
        pytest.param(b"#" * 1_048_577, "Chart.yaml has more than 1,048,576 bytes", id="long"),
        pytest.param(b"name: c\ndependencies: x\n", "Chart.yaml has no list of dependencies", id="text"),
        pytest.param(b"name: c\ndependencies: [x]\n", "Chart.yaml has a dependency without a name", id="no mapping"),
        pytest.param(
            b"name: c\ndependencies: [{name: [x]}]\n", "Chart.yaml has a dependency without a name", id="kind"
        ),
    ],
)
def test_a_chart_yaml_of_a_wrong_kind_is_one_message(folder: Path, about: bytes, reason: str) -> None:
    (folder / "Chart.yaml").write_bytes(about)

    assert message(folder) == f"'chart' is not a Helm chart ({reason})"


def test_so_is_that_of_a_chart_inside(folder: Path) -> None:
    (folder / "charts" / "a").mkdir(parents=True)
    (folder / "charts" / "a" / "Chart.yaml").write_text("null")

    assert message(folder) == "'chart' is not a Helm chart (charts/a/Chart.yaml names no chart)"


# -- memory -----------------------------------------------------------------------------------------------------------


def bomb() -> bytes:
    """A few kB that would be 800 MB: an archive of archives of zeros."""
    content = packed(("c/x", bytes(MAX_CHART_BYTES // 10)))
    for _ in range(2):
        content = packed(*((f"c/charts/a{n}-1.tgz", content) for n in range(20)))
    return content


def nested(depth: int) -> bytes:
    content = packed()
    for _ in range(depth):
        content = packed(("c/charts/a-1.tgz", content))
    return content


def long_header() -> bytes:
    """tarfile reads the whole of such a header into memory, and keeps it twice."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 600_000_000
    return gzip.compress(header.tobuf() + bytes(40_000_000)) + gzip.compress(bytes(40_000_000)) * 14


def sparse() -> bytes:
    """A file of the old GNU kind that is a hole of 600 MB."""
    member = bytearray(special("c/x", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    member[386:410] = b"%011o\0%011o\0" % (0, 0)
    member[483:495] = b"%011o\0" % 600_000_000
    member[148:156] = b" " * 8
    member[148:156] = b"%06o\0 " % sum(member)
    return gzip.compress(gzip.decompress(packed())[:1024] + bytes(member) + bytes(1024))


def truncated() -> bytes:
    return packed(("c/x", os.urandom(5000)))[:-2000]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(bomb, f"it unpacks to more than {MAX_CHART_BYTES:,} bytes", id="bomb"),
        pytest.param(lambda: gzip.compress(bytes(100_000_000), 1), f"more than {MAX_CHART_BYTES:,} bytes", id="zeros"),
        pytest.param(long_header, f"it unpacks to more than {MAX_CHART_BYTES:,} bytes", id="header"),
        pytest.param(sparse, "c/x is a link, a device or a sparse file", id="sparse"),
        pytest.param(lambda: nested(9), "charts/a-1.tgz is an archive in 4 others", id="nested"),
        pytest.param(
            lambda: packed(*(special(f"c/{n}", tarfile.DIRTYPE) for n in range(MAX_CHART_FILES + 1))),
            f"it holds more than {MAX_CHART_FILES:,} files",
            id="files",
        ),
        pytest.param(truncated, "it is not a packed chart", id="truncated"),
    ],
)
def test_a_bomb_is_refused_and_takes_little_memory(make: Callable[[], bytes], reason: str, tmp_path: Path) -> None:
    (tmp_path / "chart.tgz").write_bytes(make())

    assert reason in refused_within_bounds(tmp_path / "chart.tgz")


def test_a_stream_without_end_is_refused() -> None:
    assert refused_within_bounds(Path("/dev/zero")) == "it is neither a file nor a folder"


def refused_within_bounds(path: Path) -> str:
    """Read the chart in a process that cannot take more memory than a bound."""
    program = (
        "import pathlib, sys\nfrom cdk_hyperpod.kubernetes.helm_chart import HelmChart, InvalidChart\n"
        "try: HelmChart(pathlib.Path(sys.argv[1]))\nexcept InvalidChart as error: print(error)\nexcept OSError as error: print(error.strerror)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, path],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY)),
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_a_broken_header_is_no_traceback(tmp_path: Path) -> None:
    """Each byte of a small archive's headers, spoilt in turn."""
    unpacked = gzip.decompress(packed(special("c/x", tarfile.XHDTYPE), ("c/y", b"30 GNU.sparse.major=1\n" * 3)))
    for at in range(0, 3072, 7):
        spoilt = bytearray(unpacked)
        spoilt[at] ^= 0x55
        (tmp_path / "chart.tgz").write_bytes(gzip.compress(spoilt, 1))
        try:
            HelmChart(tmp_path / "chart.tgz")
        except InvalidChart as error:
            assert str(error)
