"""`ptxdiff list`: print cases, variants, targets, references and formats."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ptxdiff.cli import NAMES, UsageError, named, say

if TYPE_CHECKING:
    from ptxdiff.model.naming import Named
    from ptxdiff.model.variants import CaseError


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("what", nargs="*", metavar="NAME", help=f"{NAMES} (default: cases)")
    parser.add_argument(
        "--using",
        metavar="INSTRUCTION",
        help="only variants whose PTX contains this instruction: lop3, or with modifiers, mul.f16x2",
    )
    parser.add_argument("--targets", action="store_true", help="list the targets that the installed Triton serves")
    parser.add_argument(
        "--references", action="store_true", help="list the functions of references, or of the named modules"
    )
    parser.add_argument("--formats", action="store_true", help="list the number formats of ptxdiff.references.formats")


def main(args: argparse.Namespace) -> int:
    """Print one line for each variant, or the requested tables, and on stderr one line for each broken file.

    Returns 2 if a file is broken, else 0.
    """
    if args.references or args.formats:
        from ptxdiff.cli.index import formats, references

        for line in (*(formats() if args.formats else ()), *(references(args.what) if args.references else ())):
            say(line)
        return 0
    if args.targets:
        return _targets()
    faults: list[CaseError] = []
    chosen = named(args.what or ["cases"], faults)
    for fault in faults:
        say(f"ptxdiff list: {' '.join(str(fault).split())}", file=sys.stderr)
    if args.using and (chosen or not faults):
        chosen = _using(args.using, chosen)
    _by_family(chosen)
    if chosen:
        say(f"\n{_totals(chosen)}")
    elif not faults:
        say("no cases here: give paths of case files, or put them into ./cases; ptxdiff new NAME writes one")
    return 2 if faults else 0


def _totals(chosen: Sequence[Named]) -> str:
    """How many cases, variants and families there are."""
    families = {c.loaded.case.family for c in chosen} - {""}
    counts = {"case": len(chosen), "variant": sum(len(c.variants) for c in chosen)}
    counts |= {"family": len(families)} if families else {}
    plural = {"case": "cases", "variant": "variants", "family": "families"}
    return ", ".join(f"{n} {word if n == 1 else plural[word]}" for word, n in counts.items())


def _by_family(chosen: Sequence[Named]) -> None:
    families = sorted({c.loaded.case.family for c in chosen}, key=lambda family: (not family, family))
    for place, family in enumerate(families):
        if families != [""]:
            say(f"{chr(10) * (place > 0)}{family or 'no family'}:")
        for one in chosen:
            if one.loaded.case.family == family:
                _one_case(one)


def _one_case(chosen: Named) -> None:
    from ptxdiff.model.describe import variant_info

    loaded, case = chosen.loaded, chosen.loaded.case
    ins = ", ".join(f"{n}: {a}" for n, a in case.inputs.items())
    outs = ", ".join(f"{n}: {a}" for n, a in case.outputs.items())
    say(f"{loaded.name}  ({ins}) -> ({outs})  {loaded.title}")
    for name in chosen.variants:
        info = variant_info(loaded, case.variants[name])
        packs = f"pack {', '.join(info.texts)}; " if info.kind == "asm" else ""
        expected = f"; expected failure: {info.expected_failure}" if info.expected_failure else ""
        say(f"    {name:<24} {info.kind:<7} {packs}{info.match}; ftz {info.ftz}; {info.targets}{expected}")


def _using(word: str, chosen: Sequence[Named]) -> list[Named]:
    """The variants whose PTX contains an instruction. If there is none, raises UsageError with the nearest names."""
    from difflib import get_close_matches

    from ptxdiff.cli.using import instructions, uses

    found: list[Named] = []
    known: set[str] = set()
    for one in chosen:
        names = {v: instructions(one.loaded.case, one.loaded.case.variants[v]) for v in one.variants}
        known.update(*names.values())
        variants = tuple(v for v in one.variants if any(uses(name, word) for name in names[v]))
        if variants:
            found.append(replace(one, variants=variants))
    if not found:
        opcode = word.partition(".")[0]
        near = sorted(n for n in known if uses(n, opcode)) or get_close_matches(word, sorted(known), 5, 0.3)
        raise UsageError(f"no variant here uses {word}; the nearest that are used: {', '.join(near) or 'none'}")
    return found


def _targets() -> int:
    from ptxdiff.triton.installation import NoTriton
    from ptxdiff.triton.targets import probe

    try:
        table = probe()
    except NoTriton as e:
        raise UsageError(str(e)) from None
    for name, info in table.items():
        line = f"ptxas {info.ptxas}, PTX {info.ptx_version}" if info.available else f"not served: {info.words}"
        say(f"{name:<10} {line}")
    return 0
