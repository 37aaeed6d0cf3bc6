"""`ptxdiff mutate`: plant mistakes in cases' asm and references, and list those that a run would miss."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ptxdiff import options
from ptxdiff.cli import NAMES, UsageError, named, say
from ptxdiff.cli.records import written_by

if TYPE_CHECKING:
    from ptxdiff.model.case import Case
    from ptxdiff.model.load import LoadedCase
    from ptxdiff.model.naming import Named
    from ptxdiff.mutation.campaign import Budget, MutationJournal, Tell
    from ptxdiff.records import Mutation, Survivor

MANY = 100  # mutants of a reference; so many take minutes
FATES = ("missed", "equivalent", "sampled", "allowed", "undecided")

_EPILOG = """\
exit codes: 0 a run detects every mutant that gives wrong bits for a known input, 1 it misses one, or one could not be
decided, or nothing could be mutated, 2 usage
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("case", nargs="+", metavar="NAME", help=NAMES)
    parser.add_argument("--variant", action="append", default=[], help="only this variant of the cases (repeatable)")
    options.add(parser, "target", "default: sm_90a, or the latest that the variants name", action=None)
    options.add(
        parser,
        "only",
        "mutate only these; ptx is the PTX of whole Triton kernels (default: asm and reference)",
        choices=("asm", "ptx", "reference"),
    )
    parser.add_argument(
        "--most", type=int, default=0, metavar="N", help="the most mutants per variant or reference (default: all)"
    )
    options.add(parser, "seed", "the seed of the choice that --most makes", type=int, default=0, metavar="N")
    parser.add_argument(
        "--bits", type=int, default=24, help="run survivors on all inputs if these have at most so many bits (to 32)"
    )
    spread = parser.add_argument(
        "--spread", type=int, default=24, metavar="BITS", help="run other survivors on 2^BITS spread inputs"
    )
    options.formerly(parser, "--inputs", spread)
    options.add(parser, "seconds", "the most seconds for each survivor (default: 30)", default=30.0)
    options.add(parser, "journal", "store finished mutations here, and reuse them", type=Path)
    records = options.add(parser, "records", "write records to this file, for `ptxdiff report`", type=Path)
    options.formerly(parser, "--output", records)
    form = options.add(
        parser, "format", "json prints one object per line, and nothing else", choices=("text", "json"), default="text"
    )
    options.formerly(parser, "--json", form, "json")


def main(args: argparse.Namespace) -> int:
    """Print the result for the mutants of each variant and reference. Returns 0 or 1, as the help text says."""
    from ptxdiff.model.targets import normal
    from ptxdiff.mutation.campaign import BY_DEFAULT, Budget, target_of
    from ptxdiff.mutation.settle import Search
    from ptxdiff.records import to_json

    if not 0 <= args.bits <= 32 or not 0 <= args.spread <= 32 or args.most < 0:
        raise UsageError("--bits and --spread must be 0 to 32, and --most must not be negative")
    chosen = _chosen(args.case, args.variant)
    budget = Budget(args.most, args.seed, Search(args.bits, 1 << args.spread, args.seconds))
    subjects = BY_DEFAULT if args.only is None else (args.only,)
    try:
        target = normal(args.target) if args.target else ""
    except ValueError as e:
        raise UsageError(f"--target: {e}") from None
    journal = _journal(args.journal)
    mutations: list[Mutation] = []
    with written_by("mutate", args.records, chosen) as write:
        for one in chosen:
            on = target or one.target or target_of(one.loaded, one.variants)
            for mutation in _mutations(one, on, budget, subjects, journal, _tell(one, budget)):
                mutations.append(mutation)
                write(mutation)
                if args.format == "json":
                    print(json.dumps(to_json(mutation)))
                else:
                    say("\n".join(_lines(one.loaded, mutation)))
    if args.format != "json":
        say(_summary(mutations))
    tried = any(not m.words for m in mutations)
    return 0 if tried and not any(m.count("missed") or m.count("undecided") for m in mutations) else 1


def _journal(path: Path | None) -> MutationJournal | None:
    from ptxdiff.mutation.campaign import MutationJournal

    try:
        return None if path is None else MutationJournal(path)
    except (ValueError, OSError) as e:
        raise UsageError(f"--journal: {e}") from None


def _mutations(
    one: Named, target: str, budget: Budget, subjects: Sequence[str], journal: MutationJournal | None, tell: Tell
) -> Iterator[Mutation]:
    """The mutations of a case, from the journal if it has them, else computed and added to the journal."""
    from ptxdiff.mutation.campaign import MutationRequest, mutate

    if journal is None:
        yield from mutate(one.loaded, one.variants, target, budget, subjects, tell=tell)
        return

    def earlier(subject: str, names: tuple[str, ...]) -> Mutation | None:
        return journal.find(MutationRequest(one.loaded, subject, names, target, budget))

    for made in mutate(one.loaded, one.variants, target, budget, subjects, earlier, tell):
        journal.keep(MutationRequest(one.loaded, made.subject, _names(made), target, budget), made)
        yield made


def _tell(one: Named, budget: Budget) -> Tell:
    """Says on stderr that a reference has many mutants, and how to do with fewer."""

    def tell(users: Sequence[str], count: int) -> None:
        if count >= MANY:
            say(
                f"{one.loaded.name}, reference of {', '.join(users)}: {count} mutants, its own and those of "
                f"functions that it calls; each survivor is searched for up to {budget.search.seconds:g} s. "
                "--only asm leaves them out, --most N takes a sample, --journal FILE keeps what is finished",
                file=sys.stderr,
            )

    return tell


def _names(made: Mutation) -> tuple[str, ...]:
    return tuple(made.variant.split(", ")) if made.subject == "reference" else (made.variant,)


def _chosen(words: Sequence[str], variants: Sequence[str]) -> list[Named]:
    """The named cases, restricted to the variants of `--variant`. Raises UsageError for an unknown variant."""
    named_cases = named(words)
    if not variants:
        return named_cases
    known = {v for one in named_cases for v in one.variants}
    if missing := [v for v in variants if v not in known]:
        raise UsageError(f"--variant {missing[0]}: unknown; the cases have {', '.join(sorted(known))}")
    kept = [replace(one, variants=tuple(v for v in one.variants if v in variants)) for one in named_cases]
    return [one for one in kept if one.variants]


def _lines(loaded: LoadedCase, m: Mutation) -> Iterator[str]:
    """The lines on one variant or reference: a count of each fate, and the survivors that are wrong or undecided."""
    subject = f"{m.case}, reference of {m.variant}" if m.subject == "reference" else f"{m.case}::{m.variant}"
    subject = f"{subject}, its PTX" if m.subject == "ptx" else subject
    if m.words:
        yield f"{subject} [{m.target}]: nothing mutated: {m.words}"
        return
    counts = {fate: m.count(fate) for fate in ("killed", *FATES)} | {"refused": m.refused, "left out": m.left_out}
    counts["fail by padding alone"] = m.by_padding
    summary = ", ".join(f"{count} {fate}" for fate, count in counts.items() if count)
    yield f"{subject} [{m.target}]: {summary or 'no mutants'} ({m.seconds:.0f} s)"
    for survivor in m.survivors:
        if survivor.fate in ("missed", "allowed", "undecided"):
            yield f"  {_FATE_WORDS.get(survivor.fate, survivor.fate)}: {survivor.operator}: {survivor.change}"
            yield f"      {survivor.words}"
            if survivor.edge and loaded.case.elementwise:  # an element of a whole kernel cannot be a hard case
                yield f"      {edge_line(loaded.case, survivor)}"


_FATE_WORDS = {"allowed": "passes within the policy"}


def edge_line(case: Case, survivor: Survivor) -> str:
    """The `hard_cases=` line to paste into the case: its present hard cases and the survivor's input."""
    codes = tuple(int(survivor.edge[n], 16) for n in case.inputs)
    rows = [*case.hard_cases, codes]
    return "hard_cases=[" + ", ".join("(" + ", ".join(_code(c) for c in r) + ",)" for r in rows) + "],"


def _summary(found: Sequence[Mutation]) -> str:
    """The kill rate of all mutations, which counts those that give other bits somewhere; before it what the policies
    allow."""
    from ptxdiff.records.kill_rate import BY_PADDING, allowed_changes, kill_rate, totals

    total = totals(found)
    allowed = allowed_changes(found)
    padded = f"{total[BY_PADDING]} {BY_PADDING}, " if total[BY_PADDING] else ""
    return (f"{allowed}\n" if allowed else "") + (
        f"{kill_rate(found)}; {padded}{total['equivalent']} are equivalent on all inputs, "
        f"{total['sampled']} on the inputs tried, "
        f"{total['refused']} refused, {total['undecided']} undecided, {total['left out']} left out"
    )


def _code(given: int | Sequence[int]) -> str:
    return f"{given:#x}" if isinstance(given, int) else f"({', '.join(f'{c:#x}' for c in given)},)"
