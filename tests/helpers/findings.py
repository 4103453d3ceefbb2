"""Findings as tests assert them: by code and path. docs/messages.md has the sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from cdk_hyperpod.errors import ConfigError, Finding

Found = list[tuple[str, str]]
"""Code and path of each finding, in order."""


def found(findings: Iterable[Finding]) -> Found:
    """Code and path of each finding, in order."""
    return [(finding.code, finding.path) for finding in findings]


def reported(text: str) -> Found:
    """Code and path of each finding in what a command prints."""
    lines = [
        re.fullmatch(r"(?: +|warning: )(?:line \d+ +)?(?:(\S+): )?.* \[([a-z0-9-]+)\]", line)
        for line in text.split("\n")
    ]
    return [(line[2], line[1] or "") for line in lines if line]


@contextmanager
def refused(*expected: tuple[str, str]) -> Iterator[pytest.ExceptionInfo[ConfigError]]:
    """The body raises ConfigError with exactly these findings, each given as code and path."""
    with pytest.raises(ConfigError) as caught:
        yield caught
    assert found(caught.value.findings) == list(expected)


def codes(text: str) -> list[str]:
    """The codes in a reason of CloudFormation, or in another text of several sentences, in order."""
    return [code for found in re.findall(r" \[([a-z][a-z0-9, -]+)\]", text) for code in found.split(", ")]
