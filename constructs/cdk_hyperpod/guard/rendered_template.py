"""A stack's template before synthesis writes it, with all overrides."""

from __future__ import annotations

import json
import tempfile
import typing
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import ISynthesisSession, LegacyStackSynthesizer, Stack, cx_api

from .._cdk_private import write_template


def template_of(stack: Stack) -> dict[str, Any]:
    """The stack's current template. Call it only in a construct's validation, which runs after every change."""
    with tempfile.TemporaryDirectory() as folder:
        # The stack keeps its own synthesizer. This one writes the template without assets.
        writer = LegacyStackSynthesizer()
        writer.bind(stack)
        write_template(writer, typing.cast(ISynthesisSession, _Session(folder)))
        template: dict[str, Any] = json.loads((Path(folder) / stack.template_file).read_text("utf-8"))
        return template


@jsii.implements(ISynthesisSession)
class _Session:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._assembly = cx_api.CloudAssemblyBuilder(folder)

    @property
    @jsii.member(jsii_name="assembly")
    def assembly(self) -> cx_api.CloudAssemblyBuilder:
        return self._assembly

    @property
    @jsii.member(jsii_name="outdir")
    def outdir(self) -> str:
        return self._folder
