"""Faults of a variant's asm that make it wrong on every backend.

Those of `asm(...)` are looked for before any backend runs it (`fault_of`). Asm within Triton functions is known once
they are compiled: each block is run alone with outputs in the registers of inputs (`shared_registers`), and, if no
launch fills its packs, place by place (`unfilled_places`). Both depend on the block alone, and are done once for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxdiff.jobs import Job, Outcome
from ptxdiff.model.derive import AsmForm
from ptxdiff.model.dialect import AsmCall
from ptxdiff.records import UNPROVED

if TYPE_CHECKING:
    from ptxdiff.lint.block import LintedBlock

_TRIED = 256  # packs of inputs with which asm that reads a special register is run
_BLOCKS = 4096  # blocks of asm whose faults are kept


def fault_of(job: Job, form: AsmForm) -> str | None:
    """The fault of the asm, in one line; None if none is found.

    job: its inputs may have any number of units. They are used only for asm that reads a special register; without
    inputs only the text is checked.
    """
    fault = _fault_of_text(form.text, form.constraints) or _depends_on_the_machine(job, form)
    return " ".join(fault.split()) if fault else None


@lru_cache(maxsize=_BLOCKS)  # every row of a plan asks, and parsing the text takes longest
def _fault_of_text(text: str, constraints: str) -> str | None:
    from ptxdiff.emulator import repeated_name, written_input

    return written_input(text, constraints) or repeated_name(text, constraints)


def special_registers_in(form: AsmForm) -> list[str]:
    """The special registers that the text names, each once."""
    from ptxdiff.emulator import SPECIAL_REGISTERS

    return [n for n in dict.fromkeys(re.findall(r"%[a-z_0-9]+", form.text)) if n in SPECIAL_REGISTERS]


def _depends_on_the_machine(job: Job, form: AsmForm) -> str | None:
    """Why a result depends on a special register, which has no value in asm alone, in the emulator's words.

    The emulator tracks undefined bits exactly: reading the register is no fault if no result depends on it. None if no
    result does, or if the emulator cannot run the asm.
    """
    from ptxdiff.backends.snippet import run_once
    from ptxdiff.emulator import PtxError, UndefinedBits

    names = special_registers_in(form)
    if not names or not job.inputs:
        return None
    chosen = np.arange(_TRIED * form.pack)
    few = {n: np.take(np.asarray(u).reshape(-1), chosen, mode="wrap") for n, u in job.inputs.items()}
    job = replace(job, setup=replace(job.setup, shape=chosen.shape, padding=None), inputs=few)
    try:
        run_once(job, form, few, {})
    except UndefinedBits as e:
        return f"a result depends on {' or '.join(names)}, which has no value in asm alone: {e}"
    except PtxError:
        return None
    return None


# asm within Triton functions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class AsmFault:
    """What a block of asm does wrong: a finding, which fails the variant, or a note on what was not examined."""

    finding: str = ""
    note: str = ""


_DTYPES = {
    "i1": "bool", "i8": "uint8", "i16": "uint16", "i32": "uint32", "i64": "uint64", "ptr": "uint64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
}  # fmt: skip
"""The dtypes of the emulator, by MLIR's names of element types. Floats of 8 bits are bytes."""


class CalledAsm:
    """The asm within the Triton functions of one item. Each block is run alone once, whatever the launches are."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str, int], AsmCall] = {}  # each with its fullest pack
        self._findings: set[str] = set()

    def tried(self, outcome: Outcome) -> Outcome:
        """The outcome with findings and notes on the blocks that no outcome before it had."""
        faults = []
        for call in outcome.artifacts.asm:
            key = call.text, call.constraints, call.pack
            if key not in self._calls:
                faults.append(shared_registers(call))
            before = self._calls.setdefault(key, replace(call, filled=0))
            if outcome.status == "ran" and call.filled > before.filled:
                self._calls[key] = call
        findings = tuple(f.finding for f in faults if f.finding)
        notes = tuple(f.note for f in faults if f.note)
        self._findings.update(findings)
        return replace(outcome, findings=outcome.findings + findings, notes=outcome.notes + notes)

    def has_all(self, findings: Sequence[str]) -> bool:
        """Whether all of these findings are on the asm alone, and so hold for every assembler."""
        return self._findings.issuperset(findings)

    def unfilled(self) -> list[AsmFault]:
        """The faults of blocks of which some places of the pack hold padding in every launch."""
        return [unfilled_places(call) for call in self._calls.values() if 0 < call.filled < call.pack]


def shared_registers(call: AsmCall) -> AsmFault:
    """Whether results change once an output that is no early clobber has the register of an input.

    The block is run with every pair of registers that may be shared, on patterns. A block with memory cannot run alone:
    there the order of two instructions decides, of which one has no guard. Blocks without such a pair are never run.
    """
    fault = _shared_registers(call.text, call.constraints)
    where = f"inline asm{_at(call)}"
    return AsmFault(fault.finding and where + fault.finding, fault.note and UNPROVED + where + fault.note)


@lru_cache(maxsize=_BLOCKS)
def _shared_registers(text: str, constraints: str) -> AsmFault:
    from ptxdiff.lint.block import LintedBlock
    from ptxdiff.lint.flow import written_early
    from ptxdiff.lint.rules.clobbers import missing_early_clobber
    from ptxdiff.lint.snippet import Snippet

    block = LintedBlock(Snippet(text, constraints))
    finding = next(iter(missing_early_clobber(block)), None)
    if finding is None:
        return AsmFault()
    line = f", line {text[: finding.at].count(chr(10)) + 1}" if finding.at is not None else ""
    message = f"{line}: {finding.message}; {finding.instead}"
    certain = block.program is not None or any(early.certain for early in written_early(block))
    shown = finding.severity != "note" and certain
    return AsmFault(finding=message) if shown else AsmFault(note=message)


def unfilled_places(call: AsmCall) -> AsmFault:
    """Whether the places of a pack that hold padding in all launches compute what the others do.

    call: `filled` is the most places that any launch fills. Element i of a result must depend on elements i of the
    arguments alone, by the same function in each place. The block is run alone to show it. No launch would.
    """
    fault = _unfilled_places(replace(call, place="", filled=0))
    last = call.pack - 1
    which = f"places {call.filled} to {last}" if call.filled < last else f"place {last}"
    each = "one element" if call.filled == 1 else f"{call.filled} elements"
    message = f"inline asm{_at(call)}: {which} of its pack of {call.pack} hold padding in every launch, because a "
    message += f"thread has {each} of its own, so that no result shows them"
    more = f"make the block {call.pack // call.filled} times as large, or use fewer warps"
    if fault.finding:
        return AsmFault(finding=f"{message}. Run alone they are wrong: {fault.finding}; then {more}")
    return AsmFault(note=f"{UNPROVED}{message}. {fault.note}; {more}")


def _at(call: AsmCall) -> str:
    return f" at {call.place}" if call.place else ""


@lru_cache(maxsize=_BLOCKS)
def _unfilled_places(call: AsmCall) -> AsmFault:
    from ptxdiff.lint.block import LintedBlock
    from ptxdiff.lint.snippet import Snippet
    from ptxdiff.lint.trial import flows

    dtypes = [[_DTYPES.get(name, "uint8") for name in side] for side in (call.outputs, call.inputs)]
    snippet = Snippet(call.text, call.constraints, "triton", call.pure, call.pack, tuple(dtypes[0]), tuple(dtypes[1]))
    block = LintedBlock(snippet)
    flow = next(iter(flows(block)), None)
    if flow is None:
        return AsmFault(note="They could not be examined alone, because the block does not run by itself")
    for (result, at), sources in sorted(flow.depends.items()):
        if foreign := sorted(source for source in sources if source[1] != at):
            argument, element = foreign[0]
            message = f"element {at} of result {result} depends on element {element} of argument {argument}"
            return AsmFault(finding=f"{message}. Compute each element from those in its own place")
    if message := _places_differ(block, call, *dtypes):
        return AsmFault(finding=f"{message}. Compute the same in each place")
    return AsmFault(note="Run alone on sampled inputs they compute what the first place does")


_PACKS = 1 << 12


def _places_differ(block: LintedBlock, call: AsmCall, outputs: list[str], inputs: list[str]) -> str:
    """Where some place of a pack gives another result than the first place for equal elements; "" if none does."""
    from ptxdiff.emulator import PtxError, dtype_of, emulate
    from ptxdiff.lint.trial import trial_target

    columns = _patterns([dtype_of(name) for name in inputs])
    given = [np.repeat(column, call.pack) for column in columns]
    try:
        target = trial_target(block) or ""
        results: Any = emulate(block.text, block.constraints, given, outputs, pack=call.pack, target=target)
    except PtxError:
        return ""  # the flow of elements has run it already, on other inputs
    for number, result in enumerate(results if isinstance(results, tuple) else (results,)):
        bits = result.view(f"u{result.itemsize}").reshape(-1, call.pack)
        nans = (result != result).reshape(-1, call.pack)  # of payloads nothing is promised
        differ = (bits != bits[:, :1]) & ~(nans & nans[:, :1])
        if differ.any():
            pack, different = (int(n) for n in np.argwhere(differ)[0])
            codes = ", ".join(f"{int(c[pack : pack + 1].view(f'u{c.itemsize}')[0]):#x}" for c in columns)
            there, first = int(bits[pack, different]), int(bits[pack, 0])
            return f"for ({codes}) place {different} gives {there:#x} as result {number}, and place 0 gives {first:#x}"
    return ""


def _patterns(dtypes: list[np.dtype[Any]]) -> list[np.ndarray[Any, Any]]:
    """Elements for each argument: all of a single byte; else zeros, edges and random bits."""
    if [d.itemsize for d in dtypes] == [1]:
        return [np.arange(256).astype(np.uint8).view(dtypes[0]) if dtypes[0].kind != "b" else np.array([False, True])]
    columns = []
    for number, dtype in enumerate(dtypes):
        rng = np.random.default_rng(number)
        bits = 8 * dtype.itemsize
        ones = (1 << bits) - 1
        edges = [0, ones, 1, ones >> 1, (ones >> 1) + 1, *(1 << k for k in range(bits))]
        codes = rng.integers(0, ones, _PACKS, np.uint64, endpoint=True)
        chosen = rng.random(_PACKS) < 0.25
        codes[chosen] = rng.choice(np.array(edges, np.uint64), int(chosen.sum()))
        codes[0] = 0
        columns.append(codes.astype(f"u{dtype.itemsize}").view(dtype) if dtype.kind != "b" else codes.astype(bool))
    return columns
