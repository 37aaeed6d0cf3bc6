"""Make two variants of one case from command line options: the text of each PTX file, with its launch."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ptxdiff.model.load import LoadedCase
from ptxdiff.model.naming import Named, named
from ptxdiff.model.targets import capability, normal
from ptxdiff.model.variants import CaseError, PtxVariant, ptx
from ptxdiff.triton.from_ptx import entries
from ptxdiff.triton.ptx_text import without_comments

_NO_TEXT = "\n"
"""The text of a variant of which only the launch is used."""
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
    """The case, a variant for each file by its shown name, and the target.

    like: the case, maybe with the variant whose launch is used. entry, grid, block, parameters, shared: replace those
    of that variant. Each option is given once for both files, or once for each. Without block=, a file's `.reqntid` is
    used. Raises CaseError for a file that cannot be read, and for a missing or wrong option.
    """
    texts = [_read(f) for f in files]
    loaded, bases = _named_case(_each("like", like))
    options = [
        _LaunchOptions(*one) for one in zip(
            _each("grid", grid), _each("block", block), _each("parameters", parameters), _each("shared", shared),
            strict=True,
        )
    ]  # fmt: skip
    entries_asked = _each("entry", entry)
    names = _names(files)
    variants = {}
    for name, file, text, base, one, asked in zip(names, files, texts, bases, options, entries_asked, strict=True):
        made = _with_launch(file, text, like[0], base, one)
        # Faults that the case declares for its own variant are not declared for the files.
        plain = replace(made, differs=None, expected_failure=None, note="", refused=None)
        chosen = made.entry if asked is None else asked
        variants[name] = replace(plain, text=text, entry=_entry(file, text, chosen, asked is not None))
    return loaded, variants, _target(texts, target)


@dataclass(frozen=True)
class _LaunchOptions:
    """The options of a file's launch; None for one that is not given."""

    grid: str | None
    block: str | None
    parameters: str | None
    shared: int | None


def _each(option: str, given: Sequence[T]) -> tuple[T | None, T | None]:
    """An option's values for the two files. Raises CaseError for more than two."""
    if len(given) > 2:
        raise CaseError(f"--{option} is given {len(given)} times; give it once for both files, or once for each")
    return (given[0], given[-1]) if given else (None, None)


def _with_launch(file: str, text: str, like: str, base: PtxVariant | None, options: _LaunchOptions) -> PtxVariant:
    """A variant with the launch of a file. base: the variant of the case, if it has one. Raises CaseError."""
    block = options.block or _required_block(text)  # the kernel refuses a launch with another block
    if base is None:
        given = (("grid", options.grid), ("block", block), ("parameters", options.parameters))
        if missing := [f"--{n}" for n, v in given if v is None]:
            raise CaseError(
                f"{like} has no ptx(...) variant that gives the launch of {file}: give {', '.join(missing)}"
            )
        base = ptx(_NO_TEXT, grid=1, block=32, parameters=())
    if options.grid is not None:
        grid = tuple(int(w) if w.strip().isdigit() else w.strip() for w in options.grid.split(","))
        base = replace(base, grid=grid)
    if block is not None:
        made = ptx(_NO_TEXT, grid=1, block=_sizes(block), parameters=())  # raises CaseError for an impossible block
        base = replace(base, block=made.block, num_warps=made.num_warps)
    if options.parameters is not None:
        names = (w.strip() for w in options.parameters.split(","))
        base = replace(base, parameters=tuple(_parameter(w) for w in names if w))
    if options.shared is not None:
        base = replace(base, shared=options.shared)
    return base


def _required_block(text: str) -> str | None:
    """The `.reqntid` of a module's kernels, which Triton's have; None if there is none, or several that differ."""
    declared = set(_REQUIRED.findall(without_comments(text)))
    return declared.pop().replace(" ", "") if len(declared) == 1 else None


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"{file} cannot be read: {error}") from None


Pair = tuple[PtxVariant | None, PtxVariant | None]


def _named_case(words: tuple[str | None, str | None]) -> tuple[LoadedCase, Pair]:
    """The case that the two --like options name, and the variant for each file's launch; None if there is none."""
    if words[0] is None or words[1] is None:
        raise CaseError("--like is missing: name the case that has the files' inputs and reference")
    (case, one), (other_case, other) = _like(words[0]), _like(words[1])
    if (case.path, case.attribute) != (other_case.path, other_case.attribute):
        raise CaseError(f"--like names two cases, {case.name} and {other_case.name}: both files need the same case")
    return case, (one, other)


def _like(word: str) -> tuple[LoadedCase, PtxVariant | None]:
    """The case that a word names, and its ptx(...) variant; None if it has none. Raises CaseError for several."""
    cases_named: list[Named] = named([word])
    cases = {id(n.loaded.case): n.loaded for n in cases_named}
    if len(cases) != 1:
        raise CaseError(f"--like {word} names several cases: {', '.join(c.name for c in cases.values())}; name one")
    loaded = cases_named[0].loaded
    asked = [v for n in cases_named for v in n.variants]
    in_ptx = {v: made for v in asked if isinstance(made := loaded.case.variants[v], PtxVariant)}
    if not all(n.whole for n in cases_named) and not in_ptx:
        raise CaseError(f"--like {word}: the variant is no ptx(...), so it does not give the launch of a PTX file")
    if len(in_ptx) > 1:
        raise CaseError(f"--like {word} has several variants in PTX: name one of {', '.join(in_ptx)}, after ::")
    return loaded, next(iter(in_ptx.values()), None)


def _entry(file: str, text: str, entry: str, explicit: bool) -> str:
    """The name of a file's kernel: `entry` if the file has it, else its only kernel. Raises CaseError.

    explicit: whether --entry names it.
    """
    names = entries(text)
    if not names:
        return entry  # the parser reports what is wrong with the text
    if entry in names:
        return entry
    if explicit:
        raise CaseError(f"{file} has no kernel {entry!r}; it has {', '.join(names)}")
    if len(names) > 1:
        raise CaseError(f"{file} has {len(names)} kernels: choose one with --entry: {', '.join(names)}")
    return names[0]


def _names(files: tuple[str, str]) -> tuple[str, str]:
    """The shown names of the files, without folders; a variant's name must not contain slashes."""
    one, other = (re.sub(r"[\[\]/:]", "-", os.path.basename(f)).strip() for f in files)
    return (one, other) if one != other else (f"first {one}", f"second {other}")


def _target(texts: Sequence[str], asked: str | None) -> str:
    """The target `asked`, else the later of the two files' targets. Raises CaseError for an unknown one."""
    if asked is not None:
        try:
            return normal(asked)
        except ValueError as error:
            raise CaseError(f"--target: {error}") from None
    in_files = [match[1] for t in texts if (match := _TARGET.search(t))]
    for name in sorted(in_files, key=lambda n: int(re.sub(r"\D", "", n)), reverse=True):
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
        raise CaseError(f"--block {words}: give one to three whole numbers, with commas between them") from None


def _parameter(word: str) -> str | int | float:
    """A number, or a name."""
    for kind in (lambda w: int(w, 0), float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
