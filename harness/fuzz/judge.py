"""Make, emulate, assemble and judge batches of random programs. Faults are confirmed and reduced.

A batch needs no other batch and no journal, so any machine can judge it.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ptxdiff.emulator import Buffer, Kernel, PtxError, load_kernel
from ptxdiff.fuzz.assemblers import Ptxas
from ptxdiff.fuzz.execution import (
    ALIKE,
    MachineCodeInterpreter,
    MachineCodeRunner,
    NotRead,
    Words,
    emulated_words,
    expected,
    inputs_of,
    plainly_interpreted,
    text_of,
)
from ptxdiff.fuzz.generate import program
from ptxdiff.fuzz.program import BLOCK, INPUTS, OUTPUTS, RandomProgram
from ptxdiff.fuzz.reduce import (
    PLAIN_SOURCES,
    PLAIN_USES,
    PLAINER_SPELLINGS,
    Shows,
    candidates,
    reduced_by_rounds,
    unrolled_random,
)
from ptxdiff.fuzz.statements import NotPlain, statement_emulator
from ptxdiff.model.compilers import LEVELS
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.text import Unsupported
from ptxdiff.triton.cubin import loaded_sections

TOO_EARLY = "uses a result too early"
"""The kind of a finding on scoreboards (`ptxdiff.sass.scoreboards`)."""


STOPPED = "stopped the device"
"""The kind of a finding on a program whose machine code ends the device's process."""


@dataclass(frozen=True)
class FuzzPlan:
    """The plan of a campaign.

    weights: of the families. avoid: skeletons of known faults. batch: the number of programs in a module. interpreted:
    whether the machine code runs on the CPU.
    """

    seed: str
    target: str
    capability: int
    assemblers: tuple[Ptxas, ...]
    weights: Mapping[str, float]
    avoid: frozenset[str] = frozenset()
    batch: int = 32
    interpreted: bool = False

    def identity(self) -> dict[str, Any]:
        """The values that must be the same to continue a journal."""
        fields = {"seed": self.seed, "target": self.target, "weights": dict(self.weights), "batch": self.batch,
                 "assemblers": [a.label for a in self.assemblers], "programs with the same inputs": ALIKE}  # fmt: skip
        return fields | ({"interpreted": True} if self.interpreted else {})


@dataclass(frozen=True)
class PtxasFault:
    """A fault of an assembler, reduced.

    kind: "wrong" (other bits than the emulator's), "crashed", "hung", "refused" (a program that the emulator accepts),
    "stopped the device", "depends on the schedule" (machine code on the CPU gives other bits in another schedule),
    "depends on undefined bits" (it uses what it has not written: a GPU gives any bits, the right ones among them),
    `TOO_EARLY` (machine code that waits for no scoreboard before it uses a register), or "unsettled" (other bits that
    could not be reproduced, or that do not prove a fault). assemblers: the labels of those that show it. right: the
    labels of those that agree with the emulator on the reduced program. skeleton: its opcodes.
    size: its number of instructions. text: the reduced program as a module with one kernel p0. words: the error text,
    or the reason why nobody is accused. inputs, expected, given: words of the first thread that differs. seen: the
    number of programs that showed it. interpreted: whether the bits are those of machine code on the CPU.
    first_difference: the machine instruction where values first differ, and the weakest form that ran.
    """

    kind: str
    seed: str
    assemblers: tuple[str, ...]
    right: tuple[str, ...]
    skeleton: str
    size: int
    text: str
    words: str = ""
    inputs: tuple[int, ...] = ()
    expected: tuple[int, ...] = ()
    given: tuple[int, ...] = ()
    seen: int = 1
    interpreted: bool = False
    first_difference: str = ""


@dataclass(frozen=True)
class Suspect:
    """A program that is to be examined: what it showed, and the labels of the assemblers with which it did.

    kind: "wrong" (other bits than the emulator's), how an assembler ended, "stopped the device", or `TOO_EARLY`. words:
    the error text or the alarm. code: the digest of its machine code among other programs, by the first assembler.
    """

    kind: str
    seed: str
    assemblers: tuple[str, ...]
    words: str = ""
    code: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from other suspects: what several assemblers show alike is one."""
        return self.kind, self.seed


@dataclass(frozen=True)
class ModulePart:
    """Some programs of a batch in one module, as an assembler ended on it.

    places: of the programs in the batch. given: the outputs of their machine code, if the worker that made the batch
    ran it. early: then also, for each program, its first use of a result before its scoreboard is waited for; "" for
    none.
    """

    places: tuple[int, ...]
    ended: str
    cubin: bytes
    words: str
    given: Sequence[Words | NotRead] | str = ()
    early: Sequence[str] = ()


@dataclass(frozen=True)
class Batch:
    """An assembled batch. parts: for each assembler, of one module if it assembles all programs."""

    number: int
    programs: tuple[RandomProgram, ...]
    seeds: tuple[str, ...]
    expected: tuple[Words, ...]
    parts: tuple[tuple[ModulePart, ...], ...]
    refused: int


def prepared(plan: FuzzPlan, number: int) -> Batch:
    """Make, emulate and assemble a batch. Worker processes call this."""
    programs, seeds, right, refused = [], [], [], 0
    for index in range(plan.batch):
        seed = f"{plan.seed}/{number * plan.batch + index}"
        made = program(seed, plan.capability, plan.weights)
        try:
            right.append(_right(made, inputs_of(seed), plan.target, compared=index % COMPARED == 0))
        except PtxError:
            refused += 1  # a mistake in `families`, which should have only legal shapes
            continue
        programs.append(made)
        seeds.append(seed)
    every, text = range(len(programs)), text_of(programs, plan.target)
    parts = [list(assembled_parts(one, programs, every, plan.target, text)) for one in plan.assemblers]
    if plan.interpreted:
        parts = _interpreted(parts, [inputs_of(seed) for seed in seeds], plan.target)
    return Batch(number, tuple(programs), tuple(seeds), tuple(right), tuple(map(tuple, parts)), refused)


COMPARED = 64
"""One of so many programs also runs in the emulator as a whole, and so does each that an assembler seems to break."""


def _right(made: RandomProgram, inputs: Words, target: str, *, compared: bool) -> Words:
    """The right outputs of a program, statement by statement if that is possible. Raises PtxError.

    compared: raise RuntimeError if the emulator gives other words to the whole program.
    """
    try:
        found = statement_emulator(target).outputs(made, inputs)
    except NotPlain:
        return expected(made, inputs, target)
    if compared:
        _compare(made, found, inputs, target)
    return found


def _compare(made: RandomProgram, found: Words, inputs: Words, target: str) -> None:
    """Raise RuntimeError unless these are the outputs that the emulator gives to a whole program."""
    what = f"a mistake of ptxdiff: {target}, {made.skeleton}"
    try:
        right = expected(made, inputs, target)
    except PtxError as error:
        raise RuntimeError(f"{what}: words statement by statement, but not as a whole: {error}") from error
    if not np.array_equal(found, right):
        raise RuntimeError(f"{what}: other words statement by statement than as a whole")


def assembled_parts(
    one: Ptxas, programs: Sequence[RandomProgram], places: Sequence[int], target: str, text: str = ""
) -> Iterator[ModulePart]:
    """The parts of some programs. A module that fails is halved, so that a program takes no other with it.

    text: the module's, if it is known.
    """
    done = one.assemble(text or text_of([programs[p] for p in places], target), target)
    if done.ended == "assembled" or len(places) < 2:
        yield ModulePart(tuple(places), done.ended, done.cubin, done.words)
        return
    for half in (places[: len(places) // 2], places[len(places) // 2 :]):
        yield from assembled_parts(one, programs, half, target)


def _interpreted(parts: Sequence[Sequence[ModulePart]], inputs: Sequence[Words], target: str) -> list[list[ModulePart]]:
    """The parts with what their machine code gives on the CPU. Equal code of a program at several levels runs once."""
    runner = MachineCodeInterpreter(target)
    read = iter(runner.read([part.cubin for some in parts for part in some if part.ended == "assembled"]))
    met: dict[int, list[tuple[MachineCode | None, Words | NotRead, str]]] = {}

    def ran(part: ModulePart) -> ModulePart:
        if part.ended != "assembled":
            return part
        module, given, early = next(read), list[Words | NotRead](), list[str]()
        for number, place in enumerate(part.places):
            name = f"p{number}"
            code = None if isinstance(module, Unsupported) else module[name]
            known = met.setdefault(place, [])
            equal = next((k for k in known if k[0] == code), None)
            if equal is None:
                (one,) = runner.interpreted(module, [name], [inputs[place]])
                (use,) = runner.early(module, [name])
                equal = code, one if isinstance(one, NotRead) else one[0], use
                known.append(equal)
            given.append(equal[1])
            early.append(equal[2])
        return replace(part, given=given, early=early)

    return [[ran(part) for part in some] for some in parts]


@dataclass(frozen=True)
class JudgedBatch:
    """The result of judging a batch.

    known: the number of programs that show an earlier finding. plan: on a cluster, the digest of the node's plan.
    unread: runs of which the interpreter of machine code gave no bits; why: the reasons, with their numbers.
    suspects: programs that were not examined yet.
    """

    number: int
    programs: int
    refused: int
    runs: int
    known: int
    findings: tuple[PtxasFault, ...]
    plan: str = ""
    unread: int = 0
    why: Mapping[str, int] = field(default_factory=dict)
    suspects: tuple[Suspect, ...] = ()


class BatchJudge:
    """Judges one batch. runner: None without a device; then only crashes, hangs and refusals are judged.

    before: the findings so far; programs that show one of them are counted and not reduced again.
    """

    def __init__(self, plan: FuzzPlan, runner: MachineCodeRunner | None, before: Sequence[PtxasFault] = ()) -> None:
        self.plan, self.runner, self.before = plan, runner, before
        self.findings: list[PtxasFault] = []
        self.known = self.runs = 0
        self.unread: Counter[str] = Counter()
        self._suspects: dict[tuple[str, str], Suspect] = {}
        self._confirmed: set[tuple[int, int]] = set()

    def judge(self, batch: Batch) -> JudgedBatch:
        """Run the machine code, compare its outputs with the emulator's, and examine what differs."""
        tried = self.tried(batch)
        for suspect in tried.suspects:
            self.examine(suspect, batch.programs[batch.seeds.index(suspect.seed)])
        return replace(tried, known=self.known, findings=tuple(self.findings), suspects=())

    def tried(self, batch: Batch) -> JudgedBatch:
        """Run the machine code, and compare its outputs with the emulator's. Nothing is examined: that takes long."""
        for one, parts in zip(self.plan.assemblers, batch.parts, strict=True):
            for part in parts:
                if part.ended != "assembled":
                    for index in part.places:
                        self._suspect(part.ended, batch.seeds[index], one, part.words)
                elif self.runner is not None:
                    self._try_part(batch, part, one)
        suspects = tuple(self._suspects.values())
        return JudgedBatch(
            batch.number, len(batch.programs), batch.refused, self.runs, 0, (), unread=self.unread.total(),
            why=dict(self.unread), suspects=suspects,
        )  # fmt: skip

    def _suspect(self, kind: str, seed: str, one: Ptxas, words: str = "", code: str = "") -> None:
        """Note what a program shows. What it shows with several assemblers is one thing."""
        new = Suspect(kind, seed, (one.label,), words, code)
        before = self._suspects.setdefault(new.key, new)
        labels = dict.fromkeys((*before.assemblers, one.label))
        self._suspects[new.key] = replace(before, assemblers=tuple(labels))

    def _try_part(self, batch: Batch, part: ModulePart, one: Ptxas) -> None:
        assert self.runner is not None
        given = part.given or self.runner.run(part.cubin, [inputs_of(batch.seeds[p]) for p in part.places])
        self.runs += len(part.places)
        if isinstance(given, str):
            for index in part.places:
                self._suspect(STOPPED, batch.seeds[index], one, given)
            return
        for number, (index, got) in enumerate(zip(part.places, given, strict=True)):
            if isinstance(got, NotRead) and not got.depends:
                self.unread[got.words] += 1
            elif isinstance(got, NotRead) or not np.array_equal(batch.expected[index], got):
                self._confirm(batch, index)
                self._suspect("wrong", batch.seeds[index], one, code=_digest(_code_of(part.cubin, number)))
        for index, message in zip(part.places, part.early, strict=False):
            if message:
                self._suspect(TOO_EARLY, batch.seeds[index], one, message)

    def _confirm(self, batch: Batch, index: int) -> None:
        """Raise RuntimeError unless the emulator gives the right outputs of a program as a whole, too.

        Else machine code that is right would be a finding, though an unsettled one.
        """
        if (batch.number, index) not in self._confirmed:
            _compare(batch.programs[index], batch.expected[index], inputs_of(batch.seeds[index]), self.plan.target)
            self._confirmed.add((batch.number, index))

    def examine(self, suspect: Suspect, made: RandomProgram | None = None) -> None:
        """Add the findings of a program: what assemblers show alike is one finding, and a known one counts once.

        made: the program, if it is at hand.
        """
        if made is None:
            made = program(suspect.seed, self.plan.capability, self.plan.weights)
        known, first = self.known, len(self.findings)
        for one in (a for a in self.plan.assemblers if a.label in suspect.assemblers):
            if any(one.label in f.assemblers for f in self.findings[first:]):
                continue
            if suspect.kind == "wrong":
                self.differs(made, suspect.seed, one, suspect.code)
            elif suspect.kind == TOO_EARLY:
                self._uses_too_early(made, suspect.seed, one, suspect.words)
            elif suspect.kind == STOPPED:
                self._stopped(made, suspect.seed, one, suspect.words)
            else:
                self._ended_badly(made, suspect.seed, one, suspect.words)
        self.known = min(self.known, known + 1)
        alike: dict[tuple[str, str], PtxasFault] = {}
        for finding in self.findings[first:]:
            before = alike.get((finding.kind, finding.text))
            labels = (*(before.assemblers if before else ()), *finding.assemblers)
            alike[finding.kind, finding.text] = replace(before or finding, assemblers=tuple(dict.fromkeys(labels)))
        self.findings[first:] = alike.values()

    def _with_others(self, finding: PtxasFault, one: Ptxas, shows: Callable[[Ptxas], bool]) -> PtxasFault:
        """A finding with all assemblers of the campaign that show it. shows: whether another one does."""
        others = (a for a in self.plan.assemblers if a != one)
        return replace(finding, assemblers=(one.label, *(a.label for a in others if shows(a))))

    def differs(self, program: RandomProgram, seed: str, one: Ptxas, code: str = "") -> None:
        """Add a finding for a program that gives other bits than the emulator: reduced, or "unsettled" if the bits
        cannot be reproduced by the program alone. code: digest of its machine code in the module where it was found.
        """
        if self._is_known(program, one, "wrong"):
            return
        inputs = inputs_of(seed)
        if not all(self._wrong([program], inputs, one)[0] for _ in range(2)):
            finding = self._finding("unsettled", program, seed, one)
            self.findings.append(replace(finding, words=self._not_alone(program, one, code)))
            return
        small = _smallest(program, lambda programs: self._wrong(programs, inputs, one))
        self.findings.append(self._finding("wrong", small, seed, one))

    def _not_alone(self, program: RandomProgram, one: Ptxas, code: str) -> str:
        """How the machine code of a program alone differs from that among others, in words; "" if it does not."""
        done = one.assemble(text_of([program], self.plan.target), self.plan.target)
        if not code or done.ended != "assembled" or _digest(_code_of(done.cubin, 0)) == code:
            return ""
        return "ptxas makes other machine code of this program alone than among others, and only that is wrong"

    def _uses_too_early(self, program: RandomProgram, seed: str, one: Ptxas, words: str) -> None:
        """Add a finding for a program whose machine code does not wait for a scoreboard: reduced. No bits show it."""
        if self._is_known(program, one, TOO_EARLY):
            return
        small = _smallest(program, lambda programs: [bool(w) for w in self._early(programs, one)])
        (shown,) = self._early([small], one)
        finding = replace(self._finding(TOO_EARLY, small, seed, one), words=shown or words, interpreted=True)
        self.findings.append(self._with_others(finding, one, lambda other: bool(self._early([small], other)[0])))

    def _early(self, programs: Sequence[RandomProgram], one: Ptxas) -> list[str]:
        done = one.assemble(text_of(programs, self.plan.target), self.plan.target)
        if done.ended != "assembled":
            return [self._early([p], one)[0] for p in programs] if len(programs) > 1 else [""]
        runner = MachineCodeInterpreter(self.plan.target)
        (read,) = runner.read([done.cubin])
        return runner.early(read, [f"p{k}" for k in range(len(programs))])

    def _wrong(self, programs: Sequence[RandomProgram], inputs: Words, one: Ptxas) -> list[bool]:
        """Which programs give other bits than the emulator's with this assembler."""
        shown = [False] * len(programs)
        places, right = [], []
        for index, candidate in enumerate(programs):
            try:
                right.append(expected(candidate, inputs, self.plan.target))
                places.append(index)
            except PtxError:
                continue
        given = self._run([programs[p] for p in places], inputs, one) if places else None
        if given is not None:
            for index, wanted, got in zip(places, right, given, strict=True):
                shown[index] = bool(got.depends) if isinstance(got, NotRead) else not np.array_equal(wanted, got)
        elif len(programs) > 1:  # one faulty program may make the whole module fail, so each runs alone
            return [self._wrong([p], inputs, one)[0] for p in programs]
        return shown

    def _run(self, programs: Sequence[RandomProgram], inputs: Words, one: Ptxas) -> Sequence[Words | NotRead] | None:
        done = one.assemble(text_of(programs, self.plan.target), self.plan.target)
        if self.runner is None or done.ended != "assembled":
            return None
        given = self.runner.run(done.cubin, [inputs] * len(programs))
        return None if isinstance(given, str) else given

    def _ended_badly(self, made: RandomProgram, seed: str, one: Ptxas, words: str) -> None:
        """Add a finding for a program on which this assembler crashes or hangs, or which it refuses, alone."""
        ended = one.assemble(text_of([made], self.plan.target), self.plan.target).ended
        if ended == "assembled" or self._is_known(made, one, ended):
            return

        def shows(programs: Sequence[RandomProgram]) -> list[bool]:
            return [one.assemble(text_of([p], self.plan.target), self.plan.target).ended == ended for p in programs]

        small = _smallest(made, shows)
        text = text_of([small], self.plan.target)
        error = one.assemble(text, self.plan.target).words
        finding = replace(self._finding(ended, small, seed, one), words=error or words)
        also = self._with_others(finding, one, lambda other: other.assemble(text, self.plan.target).ended == ended)
        self.findings.append(also)

    def _stopped(self, made: RandomProgram, seed: str, one: Ptxas, words: str) -> None:
        """Add a finding for a program that stops the device alone, too. It has no undefined behaviour."""
        if self._run([made], inputs_of(seed), one) is None and not self._is_known(made, one, STOPPED):
            self.findings.append(replace(self._finding(STOPPED, made, seed, one), words=words))

    def _finding(self, kind: str, made: RandomProgram, seed: str, one: Ptxas) -> PtxasFault:
        inputs = inputs_of(seed)
        text = text_of([made], self.plan.target)
        finding = PtxasFault(kind, seed, (one.label,), (), made.skeleton, made.size, text)
        if kind != "wrong":
            return finding
        right = expected(made, inputs, self.plan.target)
        agree, differ, shown = [], [], None
        others = self.plan.assemblers
        if self.plan.interpreted:  # no accusation without a level that is right: look at those of this ptxas too
            levels = (Ptxas(replace(one.choice, level=level)) for level in LEVELS)
            others = tuple(dict.fromkeys((*others, *levels)))
        for other in others:
            given = self._run([made], inputs, other)
            if given is None:
                continue
            got = given[0]
            if isinstance(got, NotRead):
                if other == one:
                    kind = f"depends on {got.depends}" if got.depends else "unsettled"
                    return replace(finding, kind=kind, words=got.words, interpreted=True)
            elif np.array_equal(right, got):
                agree.append(other.label)
            else:
                differ.append(other.label)
                shown = got if other == one else shown
        if shown is None:
            return replace(finding, kind="unsettled")
        lane = int(np.flatnonzero((right != shown).any(axis=1))[0])
        finding = replace(
            finding,
            assemblers=tuple(differ),
            right=tuple(agree),
            inputs=tuple(map(int, inputs[lane])),
            expected=tuple(map(int, right[lane])),
            given=tuple(map(int, shown[lane])),
        )
        return self._proved(finding, inputs, lane, one) if self.plan.interpreted else finding

    def _proved(self, finding: PtxasFault, inputs: Words, lane: int, one: Ptxas) -> PtxasFault:
        """A finding of the interpreter; "unsettled" unless it proves a fault of the assembler."""
        doubt, first_difference = interpreted_proof(finding.text, self.plan.target, one, inputs, lane)
        if not doubt and not finding.right:
            doubt = "no level and no other ptxas gives the emulator's bits"
        kind = "unsettled" if doubt else finding.kind
        return replace(finding, kind=kind, words=doubt, first_difference=first_difference, interpreted=True)

    def _is_known(self, made: RandomProgram, one: Ptxas, kind: str) -> bool:
        """Whether the program has a known fault of a kind. Counts them."""
        findings = [f for f in (*self.before, *self.findings) if one.label in f.assemblers]
        opcodes, text = made.skeleton.split(), text_of([made], self.plan.target)
        known = any(skeleton and _within(skeleton.split(), opcodes) for skeleton in self.plan.avoid)
        known = known or any(shows_again(f, kind, text, made.skeleton) for f in findings)
        self.known += known
        return known


_OF_BITS = frozenset({"wrong", "unsettled", "depends on the schedule", "depends on undefined bits"})
"""Kinds of findings that begin with other bits than the emulator's."""


def shows_again(finding: PtxasFault, kind: str, text: str, skeleton: str) -> bool:
    """Whether a program that shows a fault of a kind shows that of an earlier finding: one of the same kind, or both of
    bits, where it has the finding's instructions joined alike; of other kinds, where it has its opcodes in order.

    text, skeleton: the program's PTX and its opcodes.
    """
    if not finding.skeleton or (finding.kind == "unsettled" and not finding.interpreted):
        return False
    if kind in _OF_BITS:
        return finding.kind in _OF_BITS and has_fault_of(finding.text, text)
    return finding.kind == kind and _within(finding.skeleton.split(), skeleton.split())


def _code_of(cubin: bytes, number: int) -> bytes:
    """The machine code of kernel p`number` of a module; nothing if there is none."""
    try:
        return loaded_sections(cubin).get(f".text.p{number}", b"")
    except (ValueError, IndexError, struct.error):
        return b""


def _digest(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest() if code else ""


def interpreted_proof(text: str, target: str, one: Ptxas, inputs: Words, lane: int) -> tuple[str, str]:
    """Why the machine code of kernel p0 does not accuse an assembler ("" if it does), and where values first part.

    lane: a thread with other words.
    """
    from ptxdiff.backends.first_difference import doubt_of_forms, doubt_of_ptx, standing

    done = one.assemble(text, target)
    (interpreted_one,) = (
        MachineCodeInterpreter(target).ran(done.cubin, [inputs]) if done.ended == "assembled" else [NotRead(done.words)]
    )
    if isinstance(interpreted_one, NotRead):
        return interpreted_one.words, ""
    outputs, ran = interpreted_one
    kernel = load_kernel(text, "p0")
    plain = plainly_interpreted(MachineCodeInterpreter.code(done.cubin, "p0"), inputs)
    if isinstance(plain, NotRead) or not np.array_equal(plain, outputs):
        return "the steps of the machine code give other words in Python than as threaded code", ""
    doubt = doubt_of_ptx(kernel, fusion=True) or doubt_of_forms(ran, target)
    parted = _parting(kernel, done.cubin, inputs, lane, outputs)
    return doubt, "; ".join(filter(None, (parted, standing(ran, target))))


def _parting(kernel: Kernel, cubin: bytes, inputs: Words, lane: int, given: Words) -> str:
    """Where values of the machine code of p0 first part from the PTX's in a thread, in words."""
    from ptxdiff.backends.first_difference import first_difference
    from ptxdiff.emulator.kernel.trace import Launched, followed
    from ptxdiff.sass import trace

    def buffers() -> tuple[Buffer, Buffer]:
        return Buffer(np.array(inputs), "inputs"), Buffer(np.zeros_like(given), "outputs", defined=False)

    grid = (len(inputs) // BLOCK, 1, 1)
    right = emulated_words(kernel, inputs)
    index = int(np.flatnonzero(right[lane] != given[lane])[0])
    ptx = followed(Launched(kernel, buffers(), grid, (BLOCK, 1, 1)), lane)
    held = buffers()
    steps = trace.followed(MachineCodeInterpreter.code(cubin, "p0"), held, grid, BLOCK, lane)
    address = held[1].address + 4 * (lane * OUTPUTS + index)
    return first_difference(ptx, steps, address, int(right[lane, index]))


def _smallest(program: RandomProgram, shows: Shows[RandomProgram]) -> RandomProgram:
    return reduced_by_rounds(program, shows, candidates, unrolled_random, lambda p: p.size)


def _within(few: Sequence[str], many: Sequence[str]) -> bool:
    left = iter(many)
    return all(word in left for word in few)


# Whether a program has a known fault ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Joined:
    """An instruction of a program's text: its opcode in plain spelling, and its registers in order."""

    opcode: str
    registers: tuple[str, ...]

    @property
    def plain(self) -> bool:
        """Whether it only makes an operand of inputs, or a word of a result."""
        kinds = "".join(r[1] for r in self.registers)
        return (self.opcode, kinds) in _PLAIN


_PLAIN = frozenset(
    {(text.split()[0], kind + "r" * text.count("{r")) for kind, text in PLAIN_SOURCES.items()}
    | {(text.split()[0], "r" * text.count("{w") + kind) for kind, text in PLAIN_USES.items()}
)


def has_fault_of(reduced: str, text: str) -> bool:
    """Whether a program has the instructions of a reduced one in order, and the registers that join them.

    reduced, text: the PTX of both. Types count as equal that `PLAINER_SPELLINGS` makes equal. Instructions that only
    make an operand or store a result do not count: other programs have others in their place.
    """
    everything = _instructions(reduced)
    few = [w for w in everything if not w.plain] or everything
    many = _instructions(text)

    def found(place: int, first: int, names: dict[str, str]) -> bool:
        if place == len(few):
            return True
        wanted = few[place]
        for at in range(first, len(many)):
            here = many[at]
            if here.opcode != wanted.opcode or len(here.registers) != len(wanted.registers):
                continue
            pairs = list(zip(wanted.registers, here.registers, strict=True))
            joined = all(names.get(r, other) == other for r, other in pairs if r in joining)
            if joined and found(place + 1, at + 1, names | dict(pairs)):
                return True
        return False

    uses = Counter(r for w in few for r in set(w.registers))
    joining = {r for w in few for r in w.registers if uses[r] > 1 and not _INPUT.fullmatch(r)}
    return found(0, 0, {})


_INPUT = re.compile(rf"%r[0-{INPUTS - 1}]")


def _instructions(text: str) -> list[_Joined]:
    body = text.partition("[%in];\n")[2].rpartition("st.global.v4.u32 [%out]")[0]
    lines = (re.sub(r"^\s*(\$L\d+:\s*)*(@!?%\w+\s+)?", "", line) for line in body.split(";"))
    return [
        _Joined(_plainly_spelled(opcode), tuple(re.findall(r"%[a-z]\d+", rest)))
        for opcode, _, rest in (line.partition(" ") for line in lines)
        if opcode and not opcode.startswith((".", "bra"))
    ]


def _plainly_spelled(opcode: str) -> str:
    for pattern, plainer in PLAINER_SPELLINGS:
        opcode = pattern.sub(plainer, opcode)
    return opcode
