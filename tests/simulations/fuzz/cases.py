"""The cases: a cluster file for each number, and the files that it names.

The same number always gives the same case.
"""

from __future__ import annotations

import copy
import gzip
import io
import random
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Json = Any
ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "tests" / "helpers" / "chart"
BASES = tuple(
    yaml.safe_load(path.read_text("utf-8"))
    for path in [ROOT / "cluster.yaml", *sorted((ROOT / "tests" / "helpers" / "configs").glob("*.yaml"))]
)
ESCAPED = "escaped"
"""The name of every file that a case tries to write outside its folder."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """`files`: path below the case's folder -> content, including cluster.yaml."""

    kind: str
    files: Mapping[str, bytes] = field(default_factory=dict)


def case(number: int, sandbox: Path) -> Case:
    """The case with this number. `sandbox`: the folder above the case's own, where nothing may be written."""
    chance = random.Random(number)
    kind, make = chance.choice(KINDS)
    return Case(kind=kind, files=make(chance, sandbox))


def _dumped(data: Json) -> bytes:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True).encode("utf-8", "surrogatepass")


def _base(chance: random.Random) -> Json:
    data = copy.deepcopy(chance.choice(BASES))
    if isinstance(data.get("eks"), dict):
        # The file's chart is at another path. Archives are a kind of case of their own.
        data["eks"]["dependencies_chart"] = "installed"
        for key in ("dependencies_chart_digest", "image_registry"):
            data["eks"].pop(key, None)
    data.get("lifecycle", {}).pop("scripts", None)
    return data


# -- structure: right and wrong values, keys and kinds anywhere ---------------------------------------------------------

TOKENS = (
    *("${Token[TOKEN.1]}", "#{Token[TOKEN.2]}", "${Token[AWS.Region.3]}", "x${Token[", "{{resolve:ssm:/x}}"),
    *("{{resolve:secretsmanager:a:SecretString:b}}", "{{ resolve:x}}", "${AWS::Region}", "$jsii.byref"),
    *("{{  \nresolve:ssm:x}}", "{{\rresolve:ssm:x}}"),
)
TEXTS = (
    *(
        "",
        " ",
        "a",
        "-",
        "a" * 64,
        "a" * 3000,
        "/",
        "/..",
        "/etc",
        "..",
        "a..b",
        "192.168.0.1",
        "é",
        "\u202e",
        "\ud83d",
    ),
    *(
        "us-west-2",
        "us-gov-west-1",
        "usw2-az1",
        "10.0.0.0/8",
        "0.0.0.0/0",
        "::/0",
        "999.9.9.9/99",
        "10.0.0.0/21",
        "%s{}",
    ),
    *(
        "arn:aws:iam::111122223333:role/x",
        "arn:aws-cn:iam::111122223333:role/x",
        "arn:aws:iam::1:role/",
        "ml.p5.48xlarge",
    ),
    *(
        "slurm",
        "eks",
        "destroy",
        "standard",
        "none",
        "null",
        "true",
        "1e9",
        "0x10",
        "\n",
        "a\nb",
        "\x85",
        "$(id)",
        "`id`",
    ),
)
NUMBERS = (0, 1, -1, 2, 3, 8, 63, 64, 100, 101, 1200, 2400, 6758, 6759, 2**31, 2**63, 10**30, -(10**18))


def _value(chance: random.Random, depth: int = 0) -> Json:
    picks: list[Callable[[], Json]] = [
        lambda: chance.choice(TEXTS),
        lambda: chance.choice(NUMBERS),
        lambda: chance.choice((True, False, None, 1.5, float("nan"), float("inf"), -1e300)),
    ]
    if depth < 3:
        picks += [
            lambda: [_value(chance, depth + 1) for _ in range(chance.randrange(4))],
            lambda: {chance.choice(TEXTS): _value(chance, depth + 1) for _ in range(chance.randrange(4))},
        ]
    return chance.choice(picks)()


def _places(value: Json) -> list[tuple[Json, Json]]:
    """Every container in the data, with each of its keys or positions."""
    found: list[tuple[Json, Json]] = []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        found.append((value, key))
        found += _places(item)
    return found


def _mutate(chance: random.Random, data: Json, make: Callable[[], Json]) -> None:
    places = _places(data)
    if not places:
        return
    holder, key = chance.choice(places)
    before = holder[key]
    match chance.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(before))
        case 2 if isinstance(holder, dict):
            holder[make() if chance.random() < 0.3 else chance.choice(TEXTS)] = holder.pop(key)
        case 3 if isinstance(before, int) and not isinstance(before, bool):
            # Close to the valid one, so that some are valid.
            holder[key] = max(0, before + chance.choice((-1, 1, 2, 8)))
        case 4 if isinstance(before, bool):
            holder[key] = not before
        case _:
            holder[key] = make()


def structure(chance: random.Random, sandbox: Path) -> dict[str, bytes]:
    del sandbox
    data = _base(chance)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 9))):
        _mutate(chance, data, lambda: _hashable_or_any(chance))
    return {"cluster.yaml": _dumped(data)}


def _hashable_or_any(chance: random.Random) -> Json:
    return chance.choice(TEXTS) if chance.random() < 0.5 else _plain(_value(chance))


def _plain(value: Json) -> Json:
    """A key must be hashable, and lists and mappings are not."""
    return str(value)[:80] if isinstance(value, (list, dict)) else value


def wrong_kinds(chance: random.Random, sandbox: Path) -> dict[str, bytes]:
    del sandbox
    data = _base(chance)
    for holder, key in chance.sample(_places(data), k=min(2, len(_places(data)))):
        if isinstance(holder, dict) and key in holder:
            holder[key] = _value(chance)
    return {"cluster.yaml": _dumped(data)}


def tokens(chance: random.Random, sandbox: Path) -> dict[str, bytes]:
    del sandbox
    data = _base(chance)
    _mutate(chance, data, lambda: chance.choice(("", "x", "/")) + chance.choice(TOKENS))
    return {"cluster.yaml": _dumped(data)}


# -- text: bytes, and what YAML can do ---------------------------------------------------------------------------------


def text(chance: random.Random, sandbox: Path) -> dict[str, bytes]:
    del sandbox
    content = bytearray(_dumped(_base(chance)))
    for _ in range(chance.choice((1, 1, 2, 8, 40))):
        at = chance.randrange(len(content) + 1)
        match chance.randrange(5):
            case 0:
                del content[at : at + chance.choice((1, 1, 5, 200))]
            case 1:
                content[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 4))))
            case 2:
                content[at:at] = chance.choice(b":-[]{}&*!|>%@`'\"#,?\t\n \0\r").to_bytes(1) * chance.choice(
                    (1, 1, 3, 999)
                )
            case 3:
                content[at:at] = content[chance.randrange(len(content) + 1) :][:60]
            case _:
                content[at : at + 1] = bytes([chance.randrange(256)])
    return {"cluster.yaml": bytes(content)}


def _laughs(chance: random.Random) -> str:
    width, depth = chance.choice(((9, 9), (2, 40), (100, 4))), chance.choice(("[{}]", "{{<<: [{}]}}"))
    lines = ["l0: &l0 {x: 1}"]
    for level in range(1, width[1]):
        lines.append(f"l{level}: &l{level} {depth.format(', '.join([f'*l{level - 1}'] * width[0]))}")
    return "\n".join(lines)


TRICKS: tuple[Callable[[random.Random], str], ...] = (
    _laughs,
    lambda chance: "x: " + chance.choice("[{") * chance.choice((40, 60, 5000)),
    lambda chance: "x: " + "[" * 60 + "]" * 60,
    lambda chance: "x: " + chance.choice(("9", "-", "0x", "1_", "1:", "0b1")) * chance.choice((5, 5000)),
    lambda chance: "account: " + chance.choice(("012345678901", "1e400", "1:2:3", "111_122_223_333", "0o777")),
    lambda chance: "name: " + chance.choice((".nan", ".inf", "2024-02-30", "2024-01-01", "no", "~", "1.30", "!!binary x")),
    lambda chance: "name: " + chance.choice(("!!python/object/apply:os.system ['id']", "!!python/name:os.system", "!x y", "!!set {a}")),
    lambda chance: "name: " + chance.choice(("!!omap [a: 1]", "!!pairs [a: 1]", "!!timestamp x", "!!int ''", "!!bool 3", "!!float x")),
    lambda chance: "name: &a " + chance.choice(("[*a]", "{<<: *a}", "*a", "{*a : 1}", "{? [a] : b}")),
    lambda chance: "name: a\nname: b",
    lambda chance: "? {a: b}\n: c",
    lambda chance: chance.choice(("%YAML 9.9\n---", "%TAG ! x\n---", "---\n---", "...", "\ufeff", "\ufeff\ufeff")),
    lambda chance: "tags: {" + ", ".join(f"k{n}: v" for n in range(chance.choice((10, 41, 21_000)))) + "}",
    lambda chance: f"tags: {{a: {'x' * chance.choice((300, 900_000))}}}",
    lambda chance: 'x: "' + chance.choice(("\\u0000", "\\uD800", "\\U00110000", "\\x1b[31m", "\\L", "\\N", "\\q")) + '"',
)  # fmt: skip


def tricks(chance: random.Random, sandbox: Path) -> dict[str, bytes]:
    del sandbox
    parts = [_dumped(_base(chance)).decode("utf-8", "replace"), chance.choice(TRICKS)(chance)]
    if chance.random() < 0.3:
        parts.reverse()
    content = "\n".join(parts)
    coding = chance.choice(("utf-8",) * 9 + ("utf-16", "utf-32", "latin-1", "cp500", "utf-8-sig"))
    return {"cluster.yaml": content.encode(coding, "replace")}


# -- archives ----------------------------------------------------------------------------------------------------------


def _packed(chance: random.Random, sandbox: Path, depth: int = 0) -> bytes:
    unpacked = io.BytesIO()
    with tarfile.open(
        fileobj=unpacked, mode="w", format=chance.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
    ) as archive:

        def add(name: str, content: bytes, kind: bytes = tarfile.REGTYPE, target: str = "") -> None:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, target, len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(content))

        for file in sorted(CHART.rglob("*")):
            if file.is_file() and chance.random() > 0.01:
                content = file.read_bytes()
                if chance.random() < 0.05:
                    content = chance.choice(
                        (b"", b"null", b"[]", b"x: [" * 999, b"\xff", b"a: !!python/name:os.x", b"name: [1]")
                    )
                add(f"chart/{file.relative_to(CHART).as_posix()}", content)
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            match chance.randrange(6):
                case 0 | 1:
                    up = chance.choice(
                        (
                            "../",
                            "../../",
                            "../../../",
                            "//",
                            "/",
                            f"/{sandbox}/",
                            f"{sandbox}/",
                            "..\\",
                            "./",
                            "charts/../../",
                        )
                    )
                    add(f"{chance.choice(('chart/', 'chart/templates/', ''))}{up}{ESCAPED}", b"x")
                case 2:
                    kind = chance.choice(
                        (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)
                    )
                    add("chart/link", b"", kind, chance.choice((str(sandbox), "..", "/etc/passwd", "Chart.yaml")))
                    add(f"chart/link/{ESCAPED}", b"x")
                case 3 if depth < 6:
                    add(
                        f"chart/charts/{chance.choice(('a', '..', '.', 'mpi-operator'))}-1.tgz",
                        _packed(chance, sandbox, depth + 1),
                    )
                case 4:
                    add("chart/big", bytes(chance.choice((1_000_000, 25_000_000))))
                case _:
                    add(
                        chance.choice(("chart/Chart.yaml", "chart/\n", "chart/" + "x" * 300, "chart/" + "d/" * 600)),
                        b"name: x",
                    )
    packed = bytearray(gzip.compress(unpacked.getvalue(), 1, mtime=0))
    if chance.random() < 0.2:
        at = chance.randrange(len(packed))
        packed[at : at + chance.choice((1, 1, 1000))] = bytes([chance.randrange(256)])
    elif chance.random() < 0.1:
        spoilt = bytearray(unpacked.getvalue())
        for _ in range(3):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        packed = bytearray(gzip.compress(spoilt, 1, mtime=0))
    return bytes(packed)


def archives(chance: random.Random, sandbox: Path) -> dict[str, bytes]:
    data = copy.deepcopy(next(base for base in BASES if base.get("name") == "elastic"))
    data["eks"]["dependencies_chart"] = "chart.tgz"
    # Every chart has these files. Each case changes something before the digest is checked, or after.
    data["eks"]["dependencies_chart_digest"] = DIGEST
    return {"cluster.yaml": _dumped(data), "chart.tgz": _packed(chance, sandbox)}


DIGEST = "sha256:" + "0" * 64
"""`run.py` replaces it with the chart's real digest, as a user does who trusts the chart."""

KINDS: tuple[tuple[str, Callable[[random.Random, Path], dict[str, bytes]]], ...] = (
    ("structure", structure), ("structure", structure), ("structure", structure), ("wrong kinds", wrong_kinds),
    ("tokens", tokens), ("text", text), ("text", text), ("YAML", tricks), ("archives", archives),
)  # fmt: skip
