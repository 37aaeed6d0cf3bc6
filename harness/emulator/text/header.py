"""Separate the header of a PTX module from its code, which compilers often write identically for several targets."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Empty lines and comments, then the two directives, each alone on its line, as LLVM writes them.
_HEADER = re.compile(r"\A((?:[ \t]*(?://[^\n]*)?\n)*)\.version (\d+\.\d+)\n\.target (sm_\d{2,3}[af]?)\n")


@dataclass(frozen=True)
class Headed:
    """A text with a neutral header, and the version and target of its original header.

    Lines and columns below the header do not change. A text with a header in another layout is left unchanged;
    `version` and `target` are then empty.
    """

    text: str
    version: str = ""
    target: str = ""


_TARGET = re.compile(r"^([ \t]*\.target[ \t]+)sm_\d{2,3}[af]?", re.M)


def retargeted(text: str, target: str) -> str:
    """A module's text with another target, for running PTX of an older GPU on a later one."""
    return _TARGET.sub(lambda found: f"{found[1]}{target}", text, count=1)


def without_header(text: str) -> Headed:
    """A module's text with a neutral header, and its original version and target."""
    match = _HEADER.match(text) if isinstance(text, str) else None
    if match is None:
        return Headed(text)
    return Headed(f"{match[1]}.version 0.0\n.target sm_00\n{text[match.end() :]}", match[2], match[3])
