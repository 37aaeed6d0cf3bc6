"""Completion in bash, zsh and fish by argcomplete: verbs, options, targets, and the names of cases and variants.

A key press starts ptxdiff, so nothing is imported here that takes time: case files are parsed and not executed.
"""

from __future__ import annotations

import argparse
import ast
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

NAMED = "NAME"
"""The metavar of arguments that name cases and variants."""


def verb_of_line() -> list[str]:
    """The first word behind the program's name on the line that is completed; none if there is no other word yet."""
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))]
    try:
        line_words = shlex.split(line)
    except ValueError:  # an open quotation mark
        line_words = line.split()
    return line_words[1:2]


def complete(parser: argparse.ArgumentParser, chosen: argparse.ArgumentParser) -> None:
    """Answer the shell and end the process, if it is the shell that asks. chosen: the parser of the verb."""
    import argcomplete

    for action in chosen._actions:
        if action.dest == "target" or action.dest == "between":
            action.completer = _targets  # type: ignore[attr-defined]
        elif action.metavar == NAMED and not action.option_strings:
            action.completer = _names  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _targets(prefix: str, **_: object) -> list[str]:
    from ptxdiff.model.targets import KNOWN

    return [name for name in KNOWN if name.startswith(prefix)]


def _names(prefix: str, **_: object) -> list[str]:
    """The cases in ./cases by name and by file; behind `::` the variants of one."""
    file_name, colons, _variant = prefix.partition("::")
    if colons:
        path = Path(file_name) if file_name.endswith(".py") else Path("cases") / f"{file_name}.py"
        return [f"{file_name}::{name}" for name in variants_in(path)]
    if "/" in prefix or Path(prefix).is_dir():
        folder = Path(prefix if prefix.endswith("/") else Path(prefix).parent)
        return [str(p) for p in sorted(folder.glob("[!_.]*.py"))]
    return sorted(path.stem for path in Path("cases").glob("[!_.]*.py"))


def variants_in(path: Path) -> Iterator[str]:
    """The names of variants that stand in a case file as text."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "Case"):
        for keyword in call.keywords:
            if keyword.arg == "variants" and isinstance(keyword.value, ast.Dict):
                keys = (key.value for key in keyword.value.keys if isinstance(key, ast.Constant))
                yield from (key for key in keys if isinstance(key, str))
