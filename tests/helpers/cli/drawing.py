"""Pictures of command output."""

from __future__ import annotations

import io
import re

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

# A picture loads no fonts.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def picture(command: str, out: str) -> str:
    """The output of a terminal, as SVG."""
    console = Console(record=True, width=80, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(out.rstrip("\n")))
    return console.export_svg(title="cdk-hyperpod", code_format=_FORMAT, unique_id=command.split()[1])
