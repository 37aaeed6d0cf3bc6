"""Records: the measured facts that leave a run, as typed, versioned JSON lines.

A records file holds one `run` line (the environment, once), then in the order in which they came: `case` lines (what a
report must know of a case, so that it needs no case file), `text` lines (asm, PTX and SASS, each stored once under its
hash), `result` and `timing` lines, and an `end` line that a run which was cut short lacks. Values are bits in
hexadecimal, because JSON has no NaN. Reports, comparisons and gates read these and nothing else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import hashlib
import json
import threading
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

SCHEMA = 1

Verdict = Literal["pass", "fail", "unsupported", "error", "not run"]
VERDICTS: tuple[Verdict, ...] = ("pass", "fail", "unsupported", "error", "not run")


class RecordError(ValueError):
    """A records file that cannot be read; the message names the file and the line."""


@dataclass(frozen=True, order=True)
class Key:
    """What a result is about. Two results with equal keys measured the same thing, on any machine, at any time.

    shape is `1023`, `7x129` or `M=4,N=64`; alignment is in bytes; input_set carries its version: `edges/1`.
    """

    case: str
    variant: str
    target: str
    backend: str
    pack: int = 1
    shape: str = ""
    alignment: int = 16
    num_warps: int = 4
    context: str = "straight"
    fusion: bool = False
    input_set: str = ""

    @property
    def item(self) -> tuple[str, str, str, str]:
        """The part that names a test item: case, variant, target, backend."""
        return (self.case, self.variant, self.target, self.backend)

    def __str__(self) -> str:
        return (
            f"{self.case}::{self.variant}[{self.target}-{self.backend}] pack={self.pack} shape={self.shape} "
            f"align={self.alignment} num_warps={self.num_warps} {self.context} "
            f"fusion={'on' if self.fusion else 'off'} inputs={self.input_set}"
        )


@dataclass(frozen=True)
class Bits:
    """One code: its bits in hexadecimal and its value as a person reads it."""

    bits: str
    value: str


@dataclass(frozen=True)
class Offender:
    """One element that differs.

    index: its position among the output's codes; place: its position within its pack, in codes.
    output: the output's name. difference: the class. ulp: the signed distance got - expected on the format's ordered
    line, None where no distance is defined.
    """

    index: int
    place: int
    output: str
    inputs: Mapping[str, Bits]
    expected: Bits
    got: Bits
    difference: str
    ulp: int | None = None


@dataclass(frozen=True)
class Block:
    """A digest of the output bits of a run of inputs: `count` inputs from number `first` on.

    sums: what `harness.goldens` needs to name the input, where a single one changed.
    """

    first: int
    count: int
    digest: str
    sums: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Result:
    """One verdict with all that was measured on the way to it."""

    key: Key
    verdict: Verdict
    expected_failure: bool = False
    """A failure that the case declares, with the declared diagnosis reproduced."""
    evidence: str = "none"
    words: str = ""
    """The reason behind a verdict other than pass, in one line."""
    message: str = ""
    """The whole failure message, ready to act on."""
    diagnosis: str = ""
    total: int = 0
    """Codes compared, over all outputs."""
    different: int = 0
    unchecked: int = 0
    """Codes that differ where no bound is promised."""
    classes: Mapping[str, int] = field(default_factory=dict)
    """Number of failing codes by class of difference."""
    ulps: Mapping[str, int] = field(default_factory=dict)
    """Signed ulp distance to number of codes, beyond +-16 by powers of two, as `17..32`; passing codes included."""
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Binary exponent of the first input (`-126` to `127`, `sub`) to the smallest and greatest signed ulp there."""
    worst: Offender | None = None
    offenders: tuple[Offender, ...] = ()
    findings: tuple[str, ...] = ()
    replay: str = ""
    inputs_digest: str = ""
    outputs_digest: tuple[Block, ...] = ()
    seed: int = 0
    contraction_open: bool = False
    asm: str = ""
    """Hash of the asm text as run; `ptx` and `sass` likewise, of the compiled code."""
    ptx: str = ""
    sass: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    instructions: Mapping[str, int] = field(default_factory=dict)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    """Hashes of what the variant is made of: asm, constraints, reference, policies."""
    seconds: float = 0.0
    sweep: Mapping[str, float] = field(default_factory=dict)
    """Of a sweep on a device: "seconds" of device time; "copy", those of a copy of as many bytes in the same run."""
    notes: tuple[str, ...] = ()
    """How a sweep was judged, where that needs saying."""


@dataclass(frozen=True)
class VariantInfo:
    """What a report says about a variant."""

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
    bound: float | None = None
    """The promised bound in ulp (0 for exact), where the policy is one."""
    line: int = 0
    """Where the variant stands in the case file, from 1; 0 where that is not known."""


@dataclass(frozen=True)
class CaseInfo:
    """What a report says about a case; `path` is relative to where the run was started."""

    case: str
    path: str
    title: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    reference: str
    source: str
    variants: Mapping[str, VariantInfo]


@dataclass(frozen=True)
class Timing:
    """Device time of one variant at one size. Times in seconds, clocks in MHz.

    key: backend "gpu"; shape is the size timed. bytes: read and written once each. samples: raw, in the order taken.
    low, high: 95% bootstrap interval of the median. copy: median time of a device copy of as many bytes in the same
    session, the floor. noise: the relative difference below which an A/A run calls two variants the same.
    """

    key: Key
    elements: int
    bytes: int
    samples: tuple[float, ...]
    median: float
    low: float
    high: float
    copy: float
    noise: float = 0.0
    launch: float = 0.0
    clocks: Mapping[str, int] = field(default_factory=dict)
    throttled: bool = False


@dataclass(frozen=True)
class Text:
    """A text stored once: kind is asm, ptx or sass."""

    hash: str
    kind: str
    text: str


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


@dataclass(frozen=True)
class End:
    """The last line of a run that came to its end."""

    finished: str
    seconds: float
    verdicts: Mapping[str, int]


Record = Run | CaseInfo | Text | Result | Timing | End
_KINDS: dict[str, type[Any]] = {
    "run": Run,
    "case": CaseInfo,
    "text": Text,
    "result": Result,
    "timing": Timing,
    "end": End,
}
_NAMES = {cls: name for name, cls in _KINDS.items()}


def text_hash(text: str) -> str:
    """The hash under which a text is stored."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def to_json(record: Record) -> dict[str, Any]:
    """A record as the JSON object of its line; fields at their defaults are left out."""
    return {"record": _NAMES[type(record)], **_plain(record)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(v) for f in dataclasses.fields(value) if (v := getattr(value, f.name)) != _default(f)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _default(f: dataclasses.Field[Any]) -> Any:
    if f.name == "schema":
        return dataclasses.MISSING  # always written: a reader decides by it
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default


def from_json(obj: Mapping[str, Any]) -> Record:
    """The record that `to_json` wrote. Raises RecordError for anything else."""
    try:
        cls = _KINDS[obj["record"]]
        record: Record = _build(cls, {k: v for k, v in obj.items() if k != "record"})
    except RecordError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise RecordError(f"not a record: {type(e).__name__}: {e}") from e
    if isinstance(record, Run) and record.schema != SCHEMA:
        raise RecordError(f"schema {record.schema}; this version reads {SCHEMA}")
    return record


Converter = Callable[[Any], Any]


@dataclass(frozen=True)
class _Layout:
    """What is needed to make an object of a record class from JSON."""

    converters: Mapping[str, Converter | None]
    defaults: Mapping[str, Any]
    factories: Mapping[str, Callable[[], Any]]
    required: frozenset[str]


def _build(cls: type[Any], obj: Mapping[str, Any]) -> Any:
    # A history of nightly runs is half a million of these. With types resolved once a class and the fields set past the
    # frozen dataclass's __init__, 19,200 results take 0.16 s; through __init__ 0.32 s; with types resolved at every
    # value 4 s.
    layout = _LAYOUTS.get(cls) or _layout(cls)
    made = object.__new__(cls)
    fields = made.__dict__
    fields.update(layout.defaults)
    for name, factory in layout.factories.items():
        fields[name] = factory()
    for name, value in obj.items():
        if name not in layout.converters:
            raise RecordError(f"{_NAMES.get(cls, cls.__name__)}: unknown field {name}")
        converter = layout.converters[name]
        fields[name] = value if converter is None else converter(value)
    if missing := layout.required - obj.keys():
        raise RecordError(f"{_NAMES.get(cls, cls.__name__)}: without {', '.join(sorted(missing))}")
    return made


_LAYOUTS: dict[type[Any], _Layout] = {}


def _layout(cls: type[Any]) -> _Layout:
    unset = dataclasses.MISSING
    fields = dataclasses.fields(cls)
    defaults = {f.name: f.default for f in fields if f.default is not unset}
    factories = {f.name: f.default_factory for f in fields if f.default_factory is not unset}
    converters = {name: _converter(hint) for name, hint in typing.get_type_hints(cls).items()}
    required = frozenset(f.name for f in fields) - defaults.keys() - factories.keys()
    return _LAYOUTS.setdefault(cls, _Layout(converters, defaults, factories, required))


def _converter(hint: Any) -> Converter | None:
    """What turns a JSON value into one of this type; None where the value is already that."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return functools.partial(_build, typing.cast(type[Any], hint))
    if origin in (typing.Union, types.UnionType):
        inner = _converter(next(a for a in args if a is not type(None)))
        return inner and (lambda value: None if value is None else inner(value))
    if origin is tuple:
        item = _converter(args[0])
        return tuple if item is None else (lambda values: tuple(map(item, values)))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        value_of = _converter(args[1])
        return value_of and (lambda values: {k: value_of(v) for k, v in values.items()})
    return None


def _line(record: Record) -> str:
    try:
        return json.dumps(to_json(record), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
    except ValueError as e:
        raise RecordError(f"{_NAMES[type(record)]}: NaN and infinities are written as bits: {e}") from e


class Writer:
    """Appends records to a file as they come, flushing each line, and stores each text once.

    The path's folders are made. Safe to use from several threads of one process; several processes never share a file
    (under pytest-xdist only the controller writes). resume: go on with a file that an earlier run left.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._texts: set[str] = set()
        self._cases: set[str] = set()
        self._lock = threading.Lock()
        if resume:
            self._take_up()
        self._file: TextIO = path.open("a" if resume else "w", encoding="utf-8")

    def _take_up(self) -> None:
        """Know what the file has, and drop what a cut-off run left half done, and the end line of the earlier run."""
        kept = [r for r in _whole_items(self.path) if not isinstance(r, End)]
        self._texts = {r.hash for r in kept if isinstance(r, Text)}
        self._cases = {r.case for r in kept if isinstance(r, CaseInfo)}
        whole = "".join(_line(r) for r in kept)
        partial = self.path.with_suffix(".partial")
        partial.write_text(whole, encoding="utf-8")
        partial.replace(self.path)

    def write(self, *records: Record) -> None:
        """Append records, all of an item's in one stroke; a text or a case that the file already has is dropped."""
        with self._lock:
            self._file.write("".join(_line(r) for r in records if self._is_new(r)))
            self._file.flush()

    def _is_new(self, record: Record) -> bool:
        if isinstance(record, Text | CaseInfo):
            known, name = (self._texts, record.hash) if isinstance(record, Text) else (self._cases, record.case)
            if name in known:
                return False
            known.add(name)
        return True

    def close(self) -> None:
        """Close the file; further writes fail."""
        self._file.close()


def read_lines(path: Path) -> Iterator[Record]:
    """The records of one file. A last line cut off in mid-write is dropped; any other fault raises RecordError."""
    lines = _lines(path)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            obj = json.loads(line)
        except ValueError as e:  # no JSON, or cut off within a character
            if number == len(lines):  # no newline behind it: the writer was stopped here
                return
            raise RecordError(f"{path}:{number}: not JSON: {e}") from e
        try:
            yield from_json(obj)
        except RecordError as e:
            raise RecordError(f"{path}:{number}: {e}") from e


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")
    except OSError as e:
        raise RecordError(f"{path}: {e}") from e


def _whole_items(path: Path) -> Iterator[Record]:
    """The records of a file; where its last line was cut off, without the results of the item it broke off in."""
    records = list(read_lines(path))
    results = [r for r in records if isinstance(r, Result)]
    broken = results[-1].key.item if results and _lines(path)[-1].strip() else None
    return (r for r in records if not (isinstance(r, Result) and r.key.item == broken))


def resumable(path: Path) -> RunRecords:
    """What a run that goes on with a file need not do again. Raises RecordError."""
    return collect(_whole_items(path), path)


@dataclass
class RunRecords:
    """One run, read back."""

    run: Run
    cases: dict[str, CaseInfo] = field(default_factory=dict)
    texts: dict[str, Text] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    end: End | None = None
    path: Path | None = None


def read(path: Path) -> RunRecords:
    """One records file, or the newest `*.jsonl` of a folder. Raises RecordError where there is none or it is faulty."""
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"))
        if not files:
            raise RecordError(f"{path}: no records (*.jsonl) in this folder")
        path = files[-1]
    with collector_paused():
        return collect(read_lines(path), path)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection within: for work on whole runs, whose many objects have no cycles.

    Reading 19,200 results then takes half as long, and folding them into a history a third.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def collect(records: Iterable[Record], path: Path | None = None) -> RunRecords:
    """Records in order, sorted into a `RunRecords`. The first must be the run's head."""
    found: RunRecords | None = None
    for record in records:
        if isinstance(record, Run):
            if found is not None:
                raise RecordError(f"{path}: two runs in one file")
            found = RunRecords(record, path=path)
        elif found is None:
            raise RecordError(f"{path}: the first line is no run record")
        elif isinstance(record, CaseInfo):
            found.cases[record.case] = record
        elif isinstance(record, Text):
            found.texts[record.hash] = record
        elif isinstance(record, Result):
            found.results.append(record)
        elif isinstance(record, Timing):
            found.timings.append(record)
        else:
            found.end = record
    if found is None:
        raise RecordError(f"{path}: empty; a records file begins with a run record")
    return found
