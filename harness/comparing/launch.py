"""From the words of a command line to two variants of one case: the files' texts, each with its launch."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from harness.model.load import LoadedCase
from harness.model.naming import Named, named
from harness.model.ptxvariant import PtxVariant, ptx
from harness.model.targets import capability, normal
from harness.model.variants import CaseError
from harness.triton.given import entries
from harness.triton.ptxtext import without_comments

_NO_TEXT = "\n"
"""The text of a variant that is there for its launch."""
T = TypeVar("T")
_REQUIRED = re.compile(r"\.reqntid\s+(\d+(?:\s*,\s*\d+){0,2})")
_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[af]?)", re.M)


def launches(
    files: tuple[str, str],
    like: Sequence[str],
    entry: Sequence[str] = (),
    *,
    grid: Sequence[str] = (),
    block: Sequence[str] = (),
    parameters: Sequence[str] = (),
    shared: Sequence[int] = (),
    target: str | None = None,
) -> tuple[LoadedCase, dict[str, PtxVariant], str]:
    """The case, a variant for each file by the name to show it under, and the target.

    like: the case, with the variant whose launch counts. entry, grid, block, parameters, shared: in the place of what
    the variant says. Each is given once for both files, or once for each. Where no option says the threads of
    a block, a file's `.reqntid` does. Raises CaseError for what cannot be read, or is not said.
    """
    texts = [_read(f) for f in files]
    loaded, bases = _both_like(_each("like", like))
    said = [
        _Said(*one) for one in zip(
            _each("grid", grid), _each("block", block), _each("parameters", parameters), _each("shared", shared),
            strict=True,
        )
    ]  # fmt: skip
    entries_asked = _each("entry", entry)
    names = _names(files)
    variants = {}
    for name, file, text, base, one, asked in zip(names, files, texts, bases, said, entries_asked, strict=True):
        made = _launched(file, text, like[0], base, one)
        # A file is judged as any other variant of the case: what its own variant is known to do wrong says nothing.
        plain = replace(made, differs=None, expected_failure=None, note="", refused=None)
        chosen = made.entry if asked is None else asked
        variants[name] = replace(plain, text=text, entry=_entry(file, text, chosen, asked is not None))
    return loaded, variants, _target(texts, target)


@dataclass(frozen=True)
class _Said:
    """The options of a file's launch; None where one is not given."""

    grid: str | None
    block: str | None
    parameters: str | None
    shared: int | None


def _each(option: str, given: Sequence[T]) -> tuple[T | None, T | None]:
    """What an option says of each file."""
    if len(given) > 2:
        raise CaseError(f"--{option} is given {len(given)} times; once for both files, or once for each")
    return (given[0], given[-1]) if given else (None, None)


def _launched(file: str, text: str, like: str, base: PtxVariant | None, said: _Said) -> PtxVariant:
    """A variant with the launch of a file."""
    block = said.block or _required(text)  # a launch with any other would be refused
    if base is None:
        given = (("grid", said.grid), ("block", block), ("parameters", said.parameters))
        if missing := [f"--{n}" for n, v in given if v is None]:
            raise CaseError(
                f"{like} has no variant of the kind ptx(...), which would say how to launch {file}: "
                f"give {', '.join(missing)}"
            )
        base = ptx(_NO_TEXT, grid=1, block=32, parameters=())
    if said.grid is not None:
        base = replace(base, grid=tuple(int(w) if w.strip().isdigit() else w.strip() for w in said.grid.split(",")))
    if block is not None:
        made = ptx(_NO_TEXT, grid=1, block=_sizes(block), parameters=())  # which refuses what no block is
        base = replace(base, block=made.block, num_warps=made.num_warps)
    if said.parameters is not None:
        base = replace(base, parameters=tuple(_parameter(w.strip()) for w in said.parameters.split(",") if w.strip()))
    if said.shared is not None:
        base = replace(base, shared=said.shared)
    return base


def _required(text: str) -> str | None:
    """The threads of a block that a module's kernels demand, as Triton's do; None where that is not one number."""
    found = set(_REQUIRED.findall(without_comments(text)))
    return found.pop().replace(" ", "") if len(found) == 1 else None


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"{file} cannot be read: {error}") from None


Pair = tuple[PtxVariant | None, PtxVariant | None]


def _both_like(words: tuple[str | None, str | None]) -> tuple[LoadedCase, Pair]:
    """The case that two words name, and the launch for each file; None where it has none."""
    if words[0] is None or words[1] is None:
        raise CaseError("--like names the case whose inputs and reference the files share")
    (case, one), (other_case, other) = _like(words[0]), _like(words[1])
    if (case.path, case.attribute) != (other_case.path, other_case.attribute):
        raise CaseError(f"--like names two cases, {case.name} and {other_case.name}: two files share the inputs of one")
    return case, (one, other)


def _like(word: str) -> tuple[LoadedCase, PtxVariant | None]:
    """The case that a word names, and how its kernel in PTX is launched; None where it has none."""
    found: list[Named] = named([word])
    cases = {id(n.loaded.case): n.loaded for n in found}
    if len(cases) != 1:
        raise CaseError(f"--like {word} names several cases: {', '.join(c.name for c in cases.values())}; name one")
    loaded = found[0].loaded
    asked = [v for n in found for v in n.variants]
    launched = {v: made for v in asked if isinstance(made := loaded.case.variants[v], PtxVariant)}
    if not all(n.whole for n in found) and not launched:
        raise CaseError(f"--like {word}: the variant is no ptx(...), so it does not say how a PTX file is launched")
    if len(launched) > 1:
        raise CaseError(f"--like {word} has several variants in PTX: name one of {', '.join(launched)}, after ::")
    return loaded, next(iter(launched.values()), None)


def _entry(file: str, text: str, entry: str, said: bool) -> str:
    """The kernel of a file: the one that was asked for, or the only one."""
    found = entries(text)
    if not found:
        return entry  # what is wrong with the text is told where it is parsed
    if entry in found:
        return entry
    if said:
        raise CaseError(f"{file} has no kernel {entry!r}; it has {', '.join(found)}")
    if len(found) > 1:
        raise CaseError(f"{file} has {len(found)} kernels: say which with --entry, one of {', '.join(found)}")
    return found[0]


def _names(files: tuple[str, str]) -> tuple[str, str]:
    """How the files are called: by their names where these differ. A variant's name has no slashes."""
    one, other = (re.sub(r"[\[\]/:]", "-", os.path.basename(f)).strip() for f in files)
    return (one, other) if one != other else (f"first {one}", f"second {other}")


def _target(texts: Sequence[str], asked: str | None) -> str:
    """The target: the one asked for, or the later of those that the files name."""
    if asked is not None:
        try:
            return normal(asked)
        except ValueError as error:
            raise CaseError(f"--target: {error}") from None
    named_there = [found[1] for t in texts if (found := _TARGET.search(t))]
    for name in sorted(named_there, key=lambda n: int(re.sub(r"\D", "", n)), reverse=True):
        try:
            known = normal(name)
        except ValueError:
            continue
        return known if capability(known) >= 75 else "sm_75"
    return "sm_90a"


def _sizes(words: str) -> list[int]:
    try:
        return [int(w) for w in words.split(",")]
    except ValueError:
        raise CaseError(f"--block {words}: one to three whole numbers, with commas between them") from None


def _parameter(word: str) -> str | int | float:
    """A number, or a name."""
    for kind in (lambda w: int(w, 0), float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
