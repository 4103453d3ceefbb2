"""A stack's template before synthesis writes it: what CloudFormation will get, overrides included, whoever made them."""

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
    """The stack's template as it is now. For a construct's validation only, which comes after every change."""
    with tempfile.TemporaryDirectory() as folder:
        # The stack keeps a synthesizer of its own. This one writes the template, and nothing of what is uploaded with it.
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
