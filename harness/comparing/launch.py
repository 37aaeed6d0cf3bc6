"""From the words of a command line to two variants of one case: the files' texts with a launch that both share."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.model.load import LoadedCase
from harness.model.naming import Named, named
from harness.model.ptxvariant import PtxVariant, ptx
from harness.model.targets import capability, normal
from harness.model.variants import CaseError
from harness.triton.given import entries

_NO_TEXT = "\n"
"""The text of a variant that is there for its launch."""
_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[af]?)", re.M)


def launches(
    files: tuple[str, str],
    like: str,
    entry: Sequence[str] = (),
    *,
    grid: str | None = None,
    block: str | None = None,
    parameters: str | None = None,
    shared: int | None = None,
    target: str | None = None,
) -> tuple[LoadedCase, dict[str, PtxVariant], str]:
    """The case, a variant for each file by the name to show it under, and the target.

    entry: of both files, or of each. grid, block, parameters, shared: in the place of what the case's variant says.
    Raises CaseError for what cannot be read, or is not said.
    """
    texts = [_read(f) for f in files]
    loaded, base = _like(like)
    if base is None:
        missing = [f"--{n}" for n, v in (("grid", grid), ("block", block), ("parameters", parameters)) if v is None]
        if missing:
            raise CaseError(
                f"{like} has no variant of the kind ptx(...), which would say how to launch the files: "
                f"give {', '.join(missing)}"
            )
        base = ptx(_NO_TEXT, grid=1, block=32, parameters=())
    if grid is not None:
        base = replace(base, grid=tuple(int(w) if w.strip().isdigit() else w.strip() for w in grid.split(",")))
    if block is not None:
        made = ptx(_NO_TEXT, grid=1, block=_sizes(block), parameters=())  # which refuses what no block is
        base = replace(base, block=made.block, num_warps=made.num_warps)
    if parameters is not None:
        base = replace(base, parameters=tuple(_parameter(w.strip()) for w in parameters.split(",") if w.strip()))
    if shared is not None:
        base = replace(base, shared=shared)
    if len(entry) > 2:
        raise CaseError(f"--entry is given {len(entry)} times; once for both files, or once for each")
    chosen = (entry[0], entry[-1]) if entry else (base.entry, base.entry)
    names = _names(files)
    # A file is judged as any other variant of the case; known faults of the case's own variant do not concern it.
    plain = replace(base, differs=None, expected_failure=None, note="", refused=None)
    variants = {
        name: replace(plain, text=text, entry=_entry(file, text, one, bool(entry)))
        for name, file, text, one in zip(names, files, texts, chosen, strict=True)
    }
    return loaded, variants, _target(texts, target)


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"{file} cannot be read: {error}") from None


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
        return entry  # the parser reports what is wrong with the text
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
