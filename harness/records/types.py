"""The record types: what a run measures, as frozen dataclasses whose fields are the keys of the JSON lines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ptxdiff.records import statistics as speed
from ptxdiff.records.in_registers import InRegisters
from ptxdiff.records.key import Amount, Count, Key
from ptxdiff.records.statistics import Beside

SCHEMA = 3
"""3: results have no power sums. 2: every line ends in a checksum (`ptxdiff.records.seal`)."""

Evidence = Literal["none", "model", "specification", "confirmed", "hardware"]
"""The evidence of a pass, from the weakest to the strongest."""
TextKind = Literal["asm", "ptx", "sass"]
Verdict = Literal["pass", "fail", "unsupported", "error", "not run"]
PYTORCH = "torch.compile"
"""The variant's name in timings of a case's expression in PyTorch."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
EVIDENCE: tuple[Evidence, ...] = get_args(Evidence)
UNPROVED = "not proved: "
"""Prefix of a note that limits what a pass proves; summaries print such notes."""
SKIPPED = "skipped by pytest: "
"""Prefix of the reason of an item that a mark, a conftest or a plugin skipped. A resumed run asks for it again."""
EXPECTED = "expected failure"
"""In counts of verdicts: a failure that its case declares."""

DECLARED = "other bits, as the case declares"
"""The diagnosis of wrong bits on a target of `differs=`."""
PTXAS = "ptxas"
"""The diagnosis of a fault of ptxas: it crashed, hung, or made machine code that differs from its PTX in meaning."""


class RecordError(ValueError):
    """A records file that cannot be read. The message names the file and the line."""


class WriteError(RecordError):
    """A records file that cannot be written, for example because the disk is full."""


@dataclass(frozen=True)
class Bits:
    """One code: its bits in hexadecimal, and its value in a readable form."""

    bits: str
    value: str


@dataclass(frozen=True)
class Offender:
    """One element that differs.

    index: its position among the output's codes. place: its position within its pack, in codes. output: the output's
    name. difference: the class. ulp: the signed distance got - expected, counted in codes in the format's order; None
    if no distance is defined. at: the position of its storage unit in each dimension of the output; empty in one
    dimension.
    """

    index: Count
    place: Count
    output: str
    inputs: Mapping[str, Bits]
    expected: Bits
    got: Bits
    difference: str
    ulp: int | None = None
    at: tuple[Count, ...] = ()


@dataclass(frozen=True)
class Disagreement:
    """Two results of the same inputs with different bits: on two targets or backends, or of two variants with the same
    reference and policy. It is found at the end of a run, by running both again.

    codes: how many differ. first: the first of them; `expected` is of `one`, `got` of `other`. ptx: the lines in which
    the two compiled kernels differ, `-` before those of `one` and `+` before those of `other`.
    """

    one: Key
    other: Key
    codes: Count
    first: Offender
    ptx: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """A digest of the output bits for consecutive inputs: `count` inputs, starting with number `first`."""

    first: Count
    count: Count
    digest: str


@dataclass(frozen=True)
class Share:
    """How much of the compared output a policy judges.

    codes: all of them. judged: those in its domain. ordinary: codes whose inputs are all finite and nonzero; if there
    is a domain, equal inputs are counted once. ordinary_judged: of these, those in the domain. A sweep on a device
    counts a sample of its inputs.
    """

    codes: Count = 0
    judged: Count = 0
    ordinary: Count = 0
    ordinary_judged: Count = 0

    def __add__(self, other: Share) -> Share:
        """The counts of both comparisons together."""
        return Share(
            self.codes + other.codes,
            self.judged + other.judged,
            self.ordinary + other.ordinary,
            self.ordinary_judged + other.ordinary_judged,
        )


@dataclass(frozen=True)
class Area:
    """A rectangle of a `Grid` around adjacent failing inputs: the first and the last code of each side."""

    row: tuple[Bits, ...]
    column: tuple[Bits, ...]
    failing: Count


@dataclass(frozen=True)
class Grid:
    """Where inputs fail, for a pair of inputs of at most 16 bits.

    row, column: the inputs' names. shape: rows and columns, each a power of two; all codes of an input, in order, are
    divided evenly among them. counts: failing inputs by cell, uint32 in little endian, row by row, deflated, in base64.
    row_ticks, column_ticks: the code at which each eighth of an axis begins, and the last one. areas: the worst. more:
    the number of further areas.
    """

    row: str
    column: str
    shape: tuple[Count, ...]
    counts: str
    row_ticks: tuple[Bits, ...]
    column_ticks: tuple[Bits, ...]
    areas: tuple[Area, ...] = ()
    more: Count = 0


@dataclass(frozen=True)
class Result:
    """One verdict, with all measurements behind it."""

    key: Key
    verdict: Verdict
    expected_failure: bool = False
    """A failure that the case declares, whose declared diagnosis was reproduced."""
    evidence: Evidence = "none"
    words: str = ""
    """The reason behind a verdict other than pass, in one line."""
    message: str = ""
    """The whole failure message, ready to act on."""
    diagnosis: str = ""
    total: Count = 0
    """Codes compared, over all outputs."""
    different: Count = 0
    unchecked: Count = 0
    """Codes that differ in a place where no bound is promised."""
    classes: Mapping[str, Count] = field(default_factory=dict)
    """Number of failing codes by class of difference."""
    ulps: Mapping[str, Count] = field(default_factory=dict)
    """Signed ulp distance to number of codes, passing codes included; beyond +-16 by powers of two, as `17..32`."""
    ulps_failing: Mapping[str, Count] = field(default_factory=dict)
    """The failing codes of `ulps`. A code that passes may lie beyond a bound in ulp: a permitted flush, for example."""
    ulps_unchecked: Mapping[str, Count] = field(default_factory=dict)
    """The codes of `ulps` that differ where no bound is promised."""
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Binary exponent of the first input (`-126` to `127`, `sub`) to the smallest and the greatest signed ulp there."""
    worst: Offender | None = None
    offenders: tuple[Offender, ...] = ()
    findings: tuple[str, ...] = ()
    replay: str = ""
    inputs_digest: str = ""
    outputs_digest: tuple[Block, ...] = ()
    seed: int = 0
    contraction_open: bool = False
    """Whether ptxas may fuse a multiplication and an addition of this code; `False` if nothing ran."""
    asm: str = ""
    """Hash of the asm text as run. `ptx` and `sass` are hashes of the compiled code."""
    ptx: str = ""
    sass: str = ""
    resources: Mapping[str, Count] = field(default_factory=dict)
    instructions: Mapping[str, Count] = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    """Digests of the variant's definition, by part (`ptxdiff.model.identity.definition`)."""
    seconds: Amount = 0.0
    sweep: Mapping[str, Amount] = field(default_factory=dict)
    """Of a sweep on a device: "seconds" of device time; "copy": seconds of a copy of as many bytes in the same run."""
    notes: tuple[str, ...] = ()
    """How a sweep was judged, if that is unusual, and what a pass leaves open (`UNPROVED`)."""
    grid: Grid | None = None
    """Where inputs fail, for a case of two small inputs; None if none fails."""
    device: str = ""
    """The UUID of the GPU that ran it, several in a merged run. The environment describes each GPU."""
    judged: Mapping[str, Share] = field(default_factory=dict)
    """By output, and by `y (the case's reference)` for `meets=`: the share of codes that the policy judges."""
    identity: str = ""
    """Digest of the experiment: the code that ran, its launch, its inputs and the machine. "" if nothing ran."""
    body: str = ""
    """Hash of the compiled PTX without header, comments and line numbers; "" if nothing was compiled."""
    ptxas: str = ""
    """The assembler of a result of the gpu or assembler backend, named as in keys; "" if none ran."""
    reused: str = ""
    """The id of the earlier run that made this result, which begins with its date; "" for a result of this run."""
    node: str = ""
    """The node of a cluster that ran it, as `HOST/ID`; "" for the machine that the run was started on."""
    padding_alone: bool = False
    """A failure only because undefined bits fill a partial pack and reach a result: with any bits there it is right."""
    dependencies: Mapping[str, str] = field(default_factory=dict)
    """Of an item's first result: digests of what its results depend on besides the definition, by part
    (`ptxdiff.model.identity.dependencies`)."""
    opened: Mapping[str, str] = field(default_factory=dict)
    """Of an item's first result: digests of the files that the case's code opened, by path."""
    weakest: str = ""
    """Of machine code that ran on the CPU: the form of machine instruction with the least evidence, in words."""
    fused: Mapping[str, str] = field(default_factory=dict)
    """Of machine code that ran on the CPU: the products that ptxas fused into a sum, in words by the PTX line of the
    sum. Empty if that decides no bit of this result, or is not known."""
    made: str = ""
    """Digest of the other fields but `reused`, as they were made (`ptxdiff.records.unedited`). "" in older records, in
    baselines, and for a result that was not encoded yet."""

    @property
    def outcome(self) -> str:
        """The verdict; for a failure that the case declares, `EXPECTED`."""
        return EXPECTED if self.expected_failure else self.verdict


@dataclass(frozen=True)
class VariantInfo:
    """A report's facts on a variant."""

    kind: str
    match: str
    ftz: str
    nan: str
    targets: str
    note: str = ""
    expected_failure: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Pack to asm as run."""
    constraints: Mapping[str, str] = field(default_factory=dict)
    bound: Amount | None = None
    """The promised bound in ulp (0 for exact); None if the policy has another kind of bound."""
    line: Count = 0
    """The line of the variant in the case file, from 1; 0 if unknown."""


@dataclass(frozen=True)
class CaseInfo:
    """A report's facts on a case. path: relative to the folder in which the run was started."""

    case: str
    path: str
    title: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    reference: str
    source: str
    variants: Mapping[str, VariantInfo]
    family: str = ""
    """The heading under which lists and the matrix show the case; "" for none."""


@dataclass(frozen=True)
class Timing:
    """Device time of one variant at one size, with the L2 emptied before every launch. Times in seconds, clocks in MHz.

    key: backend "gpu"; shape is the size timed; the variant `PYTORCH` is the case's expression in PyTorch. elements:
    storage units of the shape, or of a whole kernel's largest tensor. bytes: those read plus those written, every input
    and output once. samples: raw, in the order taken. low, high: 95% bootstrap interval of the median. copy: median
    time of a device copy that reads and writes as many bytes in all, in the same session: the floor. noise: the
    smallest relative difference that the session's A/A run can tell from noise. launch: median time of an empty kernel.
    clocks: "sm_min" and "sm_max" over the session, "memory". throttled: whether a limit reduced the clocks. size:
    "small", "L2" or "large", by the device's L2; empty for another. timer: "cupti" for the device's record of the
    kernel's begin and end, "events" for events around the launch. seed: of the random order of launches. notes: what a
    reader must know before relying on it.
    """

    key: Key
    elements: Count
    bytes: Count
    samples: tuple[Amount, ...]
    median: Amount
    low: Amount
    high: Amount
    copy: Amount
    noise: Amount = 0.0
    launch: Amount = 0.0
    clocks: Mapping[str, Count] = field(default_factory=dict)
    throttled: bool = False
    size: str = ""
    timer: str = ""
    seed: int = 0
    notes: tuple[str, ...] = ()
    device: str = ""
    """The UUID of the GPU, as in `Result.device`."""
    node: str = ""
    """The node of a cluster that measured it, as in `Result.node`. Times of different nodes are not compared."""
    ptxas: str = ""
    """The assembler of the kernel that was timed, as in `Result.ptxas`; "" in older records, and for PyTorch's."""

    def beside(self, base: Timing, *, least: float = 0.0) -> Beside:
        """Compares this timing with another of the same work: the ratio of their times, and whether it is a difference.

        Both sides are resampled; without samples, as in a baseline, their intervals decide. It is a difference only if
        the whole 95% interval lies beyond the greater A/A noise of the two, and beyond `least`.
        """
        noise = max(self.noise, base.noise, least)
        if min(len(self.samples), len(base.samples)) > 1:
            return speed.beside(base.samples, self.samples, noise)
        low, high = self.low / base.high, self.high / base.low
        return Beside(self.median / base.median, low, high, speed.verdict(low, high, noise))


@dataclass(frozen=True)
class Survivor:
    """A planted mistake that a quick run did not detect.

    operator: the kind of mistake. change: the code before and after it. fate: "missed" if an input is known on which it
    is wrong, "equivalent" (the same bits on all inputs), "sampled" (the same on those that were tried), "allowed"
    (other bits, within the policies) or "undecided" (it did not run). words: the evidence for the fate. edge: a missed
    input's codes by name.
    """

    operator: str
    change: str
    fate: str
    words: str = ""
    edge: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mutation:
    """Planted mistakes in one variant's asm or PTX, or in a reference of a case, and how many of them a quick run
    detects.

    subject: "asm", "reference", or "ptx" for a kernel that Triton compiled. variant: the variant, or those that are
    compared with the reference. killed: mutants that fail, by operator. by_padding: those that fail only as
    `Result.padding_alone`, which are not among the killed. refused: those that the binder, or the
    reference itself, refuses. left_out: those beyond the number asked for. survivors: the others. words: why nothing
    was tried, or "".
    """

    case: str
    subject: str
    variant: str
    target: str
    killed: Mapping[str, Count] = field(default_factory=dict)
    refused: Count = 0
    left_out: Count = 0
    survivors: tuple[Survivor, ...] = ()
    words: str = ""
    seconds: Amount = 0.0
    by_padding: Count = 0

    def count(self, fate: str) -> int:
        """How many mutants were killed, or survived with a fate."""
        return sum(self.killed.values()) if fate == "killed" else sum(s.fate == fate for s in self.survivors)


@dataclass(frozen=True)
class Proof:
    """Whether a variant's asm gives an accepted result for all inputs; see `ptxdiff.proving.verdicts`.

    verdict: "proved", "counterexample" or "not settled". against: "reference", the variant whose bits it must have, or
    "sass": then its machine code is proved against its PTX. words: what is wrong with a counterexample, or why nothing
    is settled. packs: those that were proved. solver: with its version. seconds: of the processor. program, rules:
    digests of what the asm computes and of what is asked of it; of machine code, of what the PTX and what the machine
    code stores. inputs: the storage units of a counterexample, by name; of machine code, the bytes in memory, by
    address. tried: the queries. assembler: what made the machine code. fingerprint: as of a result, so that a proof is
    shown beside results of the same definition alone.
    """

    case: str
    variant: str
    target: str
    verdict: str
    against: str = "reference"
    words: str = ""
    packs: tuple[int, ...] = ()
    solver: str = ""
    seconds: Amount = 0.0
    program: str = ""
    rules: str = ""
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tried: tuple[str, ...] = ()
    assembler: str = ""
    fingerprint: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Text:
    """A text stored once: kind is asm, ptx or sass."""

    hash: str
    kind: TextKind
    text: str


@dataclass(frozen=True)
class StoredText:
    """A text of this run that lies in the store of its folder (`ptxdiff.records.texts`): its hash and kind."""

    hash: str
    kind: TextKind


@dataclass(frozen=True)
class Run:
    """The head of a records file."""

    run_id: str
    started: str
    """UTC, ISO 8601."""
    effort: str
    seed: int
    environment: Mapping[str, Any]
    arguments: tuple[str, ...] = ()
    schema: int = SCHEMA
    chained: bool = True
    """Whether each line's checksum also covers the lines before it; False in a baseline."""
    planned: tuple[str, ...] = ()
    """The items that were to run, `case::variant[target-backend]`, with those of earlier starts of a resumed run."""


@dataclass(frozen=True)
class End:
    """The last line of a complete run.

    verdicts: the number of results by `outcome`. digests: of all records of each kind (`ptxdiff.records.unedited`);
    empty in older records and in baselines.
    """

    finished: str
    seconds: Amount
    verdicts: Mapping[str, Count]
    digests: Mapping[str, str] = field(default_factory=dict)


Record = Run | CaseInfo | Text | StoredText | Result | Timing | InRegisters | Disagreement | Mutation | Proof | End


@dataclass(frozen=True)
class Conflict:
    """Results of one key, from several runs, that disagree. words: in what they differ."""

    key: Key
    words: str


@dataclass
class RunRecords:
    """One run as read from its file; or several, merged, which may disagree."""

    run: Run
    cases: dict[str, CaseInfo] = field(default_factory=dict)
    texts: MutableMapping[str, Text] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    end: End | None = None
    path: Path | None = None
    conflicts: list[Conflict] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)
    in_registers: list[InRegisters] = field(default_factory=list)
    stored: dict[str, TextKind] = field(default_factory=dict)
    """The texts that lie in the store of the run's folder. Reading a whole run loads them into `texts`."""


def text_hash(text: str) -> str:
    """The hash under which a text is stored."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
