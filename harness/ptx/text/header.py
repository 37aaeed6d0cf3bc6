"""The header of a PTX module, taken out of the text: compilers write the same code for several targets below it."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Empty lines and comments, then the two directives, each alone on its line, as LLVM writes them.
_HEADER = re.compile(r"\A((?:[ \t]*(?://[^\n]*)?\n)*)\.version (\d+\.\d+)\n\.target (sm_\d{2,3}[af]?)\n")


@dataclass(frozen=True)
class Headed:
    """A text with a header that stands for every version and target, and what its own header said.

    Lines and columns below the header are those of the text. A text whose header is written in another way is left as
    it is: `version` and `target` are then empty.
    """

    text: str
    version: str = ""
    target: str = ""


_TARGET = re.compile(r"^([ \t]*\.target[ \t]+)sm_\d{2,3}[af]?", re.M)


def retargeted(text: str, target: str) -> str:
    """A module's text as if it had been written for another target: what a later GPU runs of PTX for an older one."""
    return _TARGET.sub(lambda found: f"{found[1]}{target}", text, count=1)


def without_header(text: str) -> Headed:
    """A module's text with a neutral header, and its own version and target."""
    found = _HEADER.match(text) if isinstance(text, str) else None
    if found is None:
        return Headed(text)
    return Headed(f"{found[1]}.version 0.0\n.target sm_00\n{text[found.end() :]}", found[2], found[3])
