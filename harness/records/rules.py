"""Contradictions that are refused: between the fields of a record, and between the records of a file."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from ptxdiff.records.in_registers import MODES, InRegisters
from ptxdiff.records.key import Key
from ptxdiff.records.types import (
    EXPECTED,
    VERDICTS,
    CaseInfo,
    Disagreement,
    End,
    Grid,
    Mutation,
    Proof,
    Record,
    Result,
    Run,
    StoredText,
    Text,
    Timing,
    text_hash,
)


class ContradictionError(ValueError):
    """A record contradicts itself or its file. The message says how."""


def check(record: Record) -> None:
    """Raise ContradictionError for a record that contradicts itself."""
    rules = _RULES.get(type(record))
    if rules is not None:
        rules(record)


def _result(r: Result) -> None:
    if r.different and r.verdict == "pass":
        raise ContradictionError(f"the verdict is pass, but {r.different} codes differ")
    if r.findings and r.verdict == "pass":
        raise ContradictionError(f"the verdict is pass, but there are {len(r.findings)} findings")
    if r.verdict == "pass" and r.evidence != "none" and not r.total:
        raise ContradictionError(f"the verdict is pass by evidence {r.evidence}, but no code was compared")
    if r.expected_failure and r.verdict != "fail":
        raise ContradictionError(f"an expected failure with the verdict {r.verdict}")
    if r.key.assembler and r.ptxas and r.ptxas != r.key.assembler:
        raise ContradictionError(f"the key names {r.key.assembler!a}, but ptxas was {r.ptxas!a}")
    # Twice the total: a code may differ from the variant's own reference, and from the case's in `meets=`.
    if r.different > 2 * r.total:
        raise ContradictionError(f"{r.different} codes differ, of {r.total} compared")
    if r.unchecked > r.total:
        raise ContradictionError(f"{r.unchecked} codes unchecked, of {r.total} compared")
    for label in {*r.ulps_failing, *r.ulps_unchecked}:
        part = r.ulps_failing.get(label, 0) + r.ulps_unchecked.get(label, 0)
        if part > r.ulps.get(label, 0):
            raise ContradictionError(f"ulps: {part} failing or unchecked codes at {label!a}, of {r.ulps.get(label, 0)}")
    if r.evidence == "hardware" and r.key.backend != "gpu":
        raise ContradictionError(f"evidence hardware of backend {r.key.backend}, which runs on none")
    _shares(r)
    for name, (low, high) in r.ranges.items():
        if low > high:
            raise ContradictionError(f"ranges: {name!a} from {low} to {high}")
    if r.grid is not None:
        _grid(r.grid)


def _shares(r: Result) -> None:
    """Counts of one result that must add up. A sweep counts a sample of its inputs, and has no digest of them."""
    for name, share in r.judged.items():
        if share.judged > share.codes or share.ordinary > share.codes or share.ordinary_judged > share.ordinary:
            raise ContradictionError(f"judged: of {name!a} more codes are judged than there are")
    if not r.judged or not r.inputs_digest or r.sweep or r.key.context != "straight":
        return
    compared = sum(share.codes for name, share in r.judged.items() if not name.endswith(_CASES_REFERENCE))
    if compared != r.total:
        raise ContradictionError(f"{r.total} codes compared, but the shares of its outputs have {compared}")
    left = sum(share.codes - share.judged for share in r.judged.values())
    if r.unchecked > left:
        raise ContradictionError(f"{r.unchecked} codes unchecked, but only {left} are not judged")
    if sum(r.ulps.values()) > r.total:
        raise ContradictionError(f"distances of {sum(r.ulps.values())} codes, of {r.total} compared")


_CASES_REFERENCE = " (the case's reference)"
"""The suffix of an output's name for the comparison with the case's reference, by `meets=`."""


def _grid(grid: Grid) -> None:
    if len(grid.shape) != 2 or not all(n and n & (n - 1) == 0 and n <= 1 << 16 for n in grid.shape):
        raise ContradictionError(f"grid: shape {grid.shape}; rows and columns must be powers of two")
    size = 4 * prod(grid.shape)
    try:
        inflate = zlib.decompressobj()
        counts = inflate.decompress(base64.b64decode(grid.counts, validate=True), size + 1)
    except (binascii.Error, ValueError, zlib.error) as e:
        raise ContradictionError(f"grid: counts: {e}") from None
    if len(counts) != size or not inflate.eof:
        raise ContradictionError(f"grid: counts do not fill {grid.shape[0]} rows of {grid.shape[1]}")


def _timing(t: Timing) -> None:
    if t.key.assembler and t.ptxas != t.key.assembler:
        raise ContradictionError(f"the key names {t.key.assembler!a}, but ptxas was {t.ptxas!a}")
    if not 0 < t.low <= t.median <= t.high:
        raise ContradictionError(f"median {t.median} s is not within {t.low} to {t.high}")


def _in_registers(t: InRegisters) -> None:
    if t.mode not in MODES:
        raise ContradictionError(f"shape {t.mode!a}; expected {' or '.join(MODES)}")
    figures = t.results, t.median, t.low, t.high, *t.samples, *t.opcodes.values()
    if t.words:
        if any(figures):
            raise ContradictionError(f"figures of a loop that was not timed: {t.words}")
        return
    if not 0 < t.low <= t.median <= t.high:
        raise ContradictionError(f"median {t.median} clocks is not within {t.low} to {t.high}")
    if not t.results:
        raise ContradictionError("an application without results")
    if not sum(t.opcodes.values()):
        raise ContradictionError("a loop without instructions")


FATES = ("missed", "equivalent", "sampled", "allowed", "undecided")


def _mutation(m: Mutation) -> None:
    if m.subject not in ("asm", "ptx", "reference"):
        raise ContradictionError(f"subject {m.subject!a}; expected asm, ptx or reference")
    if unknown := {s.fate for s in m.survivors} - {*FATES}:
        raise ContradictionError(f"fate {min(unknown)!a}; expected one of {', '.join(FATES)}")


PROOFS = ("proved", "counterexample", "not settled")


def _proof(p: Proof) -> None:
    if p.verdict not in PROOFS:
        raise ContradictionError(f"verdict {p.verdict!a}; expected one of {', '.join(PROOFS)}")
    if p.verdict == "proved" and not (p.packs and p.program and p.rules and not p.words):
        raise ContradictionError("a proof without packs or digests, or with a reason against it")
    if p.verdict == "proved" and p.against == "sass" and not p.assembler:
        raise ContradictionError("a proof of machine code without the assembler that made it")
    if p.verdict != "proved" and not p.words:
        raise ContradictionError(f"{p.verdict} without a reason")


def _text(text: Text) -> None:
    if text_hash(text.text) != text.hash:
        raise ContradictionError(f"its hash {text.hash!a} is not that of its text, {text_hash(text.text)!a}")


def _run(run: Run) -> None:
    machines = run.environment.get("machines")
    if machines is not None and not (isinstance(machines, list) and all(isinstance(m, Mapping) for m in machines)):
        raise ContradictionError("environment: machines must be a list of environments")


def _end(end: End) -> None:
    unknown = end.verdicts.keys() - {*VERDICTS, EXPECTED}
    if unknown:
        raise ContradictionError(f"verdicts: unknown verdict {min(unknown)!a}")


_RULES: dict[type[Any], Callable[[Any], None]] = {
    Result: _result,
    Timing: _timing,
    InRegisters: _in_registers,
    Mutation: _mutation,
    Proof: _proof,
    Run: _run,
    Text: _text,
    End: _end,
}


class Contents:
    """The records of one file as they are read: one head, no duplicates, nothing after the end, and right counts."""

    def __init__(self) -> None:
        self.head: Run | None = None
        self.end: End | None = None
        self._verdicts: Counter[str] = Counter()
        self._once: set[tuple[str, object]] = set()
        self._definitions: dict[tuple[str, str, str, str], Mapping[str, str]] = {}

    def add(self, record: Record) -> None:
        """Check the next record. Raises ContradictionError if it cannot stand here."""
        if self.end is not None:
            raise ContradictionError("a line after the end of the run")
        if isinstance(record, Run):
            if self.head is not None:
                raise ContradictionError("two runs in one file")
            self.head = record
            return
        if self.head is None:
            raise ContradictionError("the first line is no run record")
        if isinstance(record, End):
            self._counted(record)
            self.end = record
        elif (name := _name(record)) is not None:
            if name in self._once:
                raise ContradictionError(f"a second {name[0]} {name[1]}")
            self._once.add(name)
        if isinstance(record, Result):
            self._verdicts[record.outcome] += 1
            self._defined(record)

    def _defined(self, result: Result) -> None:
        """All results of an item are of one definition, as an item runs as a whole or is carried over as a whole."""
        if not result.fingerprint:
            return
        before, now = self._definitions.setdefault(result.key.item, result.fingerprint), result.fingerprint
        if before == now:
            return
        # A digest with a space is of something that no other process can compare.
        parts = [n for n in sorted({*before, *now}) if (d := before.get(n, "")) != (e := now.get(n, ""))
                 and " " not in d + e]  # fmt: skip
        if parts:
            raise ContradictionError(
                f"its {', '.join(parts)} differ from those of the item's earlier results: they are of two runs, or "
                "were edited"
            )

    def _counted(self, end: End) -> None:
        said, found = ({n: k for n, k in v.items() if k} for v in (end.verdicts, self._verdicts))
        if said != found:
            miscounts = [f"{said.get(n, 0)} {n} and not {found.get(n, 0)}" for n in (*VERDICTS, EXPECTED)
                     if said.get(n, 0) != found.get(n, 0)]  # fmt: skip
            raise ContradictionError(f"the run ended with {', '.join(miscounts)}: lines were lost or added")


def _name(record: Record) -> tuple[str, Key | str | tuple[Key, Key]] | None:
    """The name of a record that a file may have only once; None if several are allowed."""
    if isinstance(record, Result):
        return "result of", record.key
    if isinstance(record, Text | StoredText):
        return "text", record.hash
    if isinstance(record, CaseInfo):
        return "case", record.case
    if isinstance(record, Disagreement):
        return "disagreement of", (record.one, record.other)
    if isinstance(record, Mutation):
        return "mutation of", f"{record.case}::{record.variant} {record.subject} {record.target}"
    if isinstance(record, Proof):
        return "proof of", f"{record.case}::{record.variant} {record.target} {record.against}"
    return None
