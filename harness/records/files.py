"""Records files: writes records as results come in, and reads whole files."""

from __future__ import annotations

import contextlib
import gc
import json
import re
import threading
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ptxdiff.records.encoding import parsed, to_text
from ptxdiff.records.history_facts import summarise
from ptxdiff.records.in_registers import InRegisters
from ptxdiff.records.key import Key
from ptxdiff.records.lock import FileLock
from ptxdiff.records.rules import Contents, ContradictionError
from ptxdiff.records.seal import Seal, SealError
from ptxdiff.records.texts import (
    COMPRESSED,
    PLAIN,
    Compressor,
    StoreWriter,
    Texts,
    TextStore,
    lines_of,
    record_files,
    write_all,
)
from ptxdiff.records.types import (
    SCHEMA,
    SKIPPED,
    CaseInfo,
    Conflict,
    Disagreement,
    End,
    Mutation,
    Proof,
    Record,
    RecordError,
    Result,
    Run,
    RunRecords,
    StoredText,
    Text,
    Timing,
    WriteError,
)
from ptxdiff.records.unedited import EditedError, Whole, with_digest


class Writer:
    """Appends records to a file at once, and stores each text once.

    A path that ends in `.jsonl.zst` is compressed. shared: put texts into the store of the path's folder, so that the
    runs there share them; the file then names them, and is incomplete without the store.

    The path's folders are created. Several threads of one process may use it; no other process can write the file
    meanwhile (under pytest-xdist only the controller writes). resume: continue the file of an earlier run. lock: of the
    file, if the caller holds it already; `close` releases it. planned: on a resumed file, its items. Raises WriteError
    if the file cannot be written, now or later; the records written before that stay readable.
    """

    def __init__(
        self, path: Path, *, resume: bool = False, lock: FileLock | None = None, planned: Sequence[str] = (),
        shared: bool = False,
    ) -> None:  # fmt: skip
        self.path = path
        self._held = lock or FileLock(path)
        self._texts: set[str] = set()
        self._cases: set[str] = set()
        self._lock = threading.Lock()
        self._seal = Seal()
        self._whole = Whole()
        self._broken = ""
        self._ended = False
        self._compressor = Compressor() if path.name.endswith(COMPRESSED) else None
        self._store: StoreWriter | None = None
        try:
            kept = self._take_up(planned) if resume else []
            if shared or any(isinstance(r, StoredText) for r in kept):
                self._store = StoreWriter(path.parent)
            begun = path.with_suffix(".partial") if resume else path
            # Unbuffered, so that closing the file does not try again to write what a full disk refused.
            self._file = begun.open("wb", buffering=0)
            if resume:
                write_all(self._file, self._encoded(_continued(kept, self._seal, self._whole)))
                begun.replace(path)
        except BaseException as e:
            if self._store is not None:
                self._store.close()
            self._held.release()
            if isinstance(e, OSError):
                raise WriteError(f"{path}: {e.strerror or e}") from e
            raise

    def _take_up(self, planned: Sequence[str]) -> list[Record]:
        """The records of the file that stay: without a half-written item and the `end` line of the earlier run."""
        kept: list[Record] = [r for r in _whole_items(self.path) if not isinstance(r, Disagreement | End)]
        kept = [replace(r, planned=tuple(planned) or r.planned) if isinstance(r, Run) else r for r in kept]
        self._texts = {r.hash for r in kept if isinstance(r, Text | StoredText)}
        self._cases = {r.case for r in kept if isinstance(r, CaseInfo)}
        return kept

    def _encoded(self, data: bytes) -> bytes:
        return data if self._compressor is None else self._compressor.block(data)

    def write(self, *records: Record | Sent) -> None:
        """Append records in one write call. A text or a case that the file already has is left out."""
        with self._lock:
            if self._broken:
                raise WriteError(f"{self.path}: {self._broken}")
            seal, count = self._seal.copy(), self._whole.copy()
            new = [r for r in records if self._is_new(r.record if isinstance(r, Sent) else r)]
            whole = self._file.tell()
            try:
                if self._store is not None:
                    new = [self._stored(self._store, r) for r in new]
                write_all(self._file, self._encoded(_continued(new, seal, count)))
            except OSError as e:
                with contextlib.suppress(OSError):
                    self._file.truncate(whole)
                # Nothing may follow: the end would count what is missing, a compressed block refers to the one before.
                self._broken = e.strerror or str(e)
                raise WriteError(f"{self.path}: {e.strerror or e}") from e
            self._seal, self._whole = seal, count
            self._ended = self._ended or any(isinstance(r.record if isinstance(r, Sent) else r, End) for r in records)

    def _stored(self, store: StoreWriter, one: Record | Sent) -> Record | Sent:
        """A record for the file: for a text, which is put into the store first, the line that names it."""
        record = one.record if isinstance(one, Sent) else one
        if not isinstance(record, Text):
            return one
        store.add(record)
        return StoredText(record.hash, record.kind)

    def _is_new(self, record: Record) -> bool:
        if isinstance(record, Text | CaseInfo):
            known, name = (self._texts, record.hash) if isinstance(record, Text) else (self._cases, record.case)
            if name in known:
                return False
            known.add(name)
        return True

    def close(self) -> None:
        """Close the file. Further writes fail."""
        if self._compressor is not None and not self._file.closed and not self._broken:
            with contextlib.suppress(OSError):  # without it, the lines can be read as well
                self._compressor.end(self._file)
                if self._ended:
                    self._summarise()
        self._file.close()
        if self._store is not None:
            self._store.close()
        self._held.release()

    def _summarise(self) -> None:
        """Append the run's summary, made from the file as a reader finds it. Without one, a reader takes the lines."""
        whole = self._file.tell()
        try:
            write_all(self._file, summarise(self.path, read_lines(self.path)))
        except (OSError, ValueError):  # a full disk, for example; a RecordError is a ValueError
            self._file.truncate(whole)


def _continued(records: Iterable[Record | Sent], seal: Seal, whole: Whole) -> bytes:
    """The lines of records, which `whole` counts. The end of a run gets the digests of all that was written before."""
    texts = []
    for one in records:
        if isinstance(one, End) and not one.digests:
            one = replace(one, digests=whole.digests)
        texts.append(_text_of(one))
        whole.add(texts[-1])
    return _closed(texts, seal)


def lines(records: Iterable[Record | Sent], seal: Seal) -> bytes:
    """The lines of records, with checksums that continue the seal's."""
    return _closed(map(_text_of, records), seal)


def _closed(texts: Iterable[bytes], seal: Seal) -> bytes:
    return b"".join([seal.close(text) for text in texts])


def _text_of(record: Record | Sent) -> bytes:
    return record.text if isinstance(record, Sent) else to_text(record)


def read_lines(path: Path) -> Iterator[Record]:
    """The records of one file. A last line that was cut off is dropped; any other fault raises RecordError."""
    seal, contents, whole = Seal(), Contents(), Whole()
    for number, (line, last) in enumerate(lines_of(path), 1):
        if number == 1 and (foreign := _foreign(line)):
            raise RecordError(f"{path}:1: {foreign}")
        if last and not line:
            return
        try:
            text = seal.open(line)
            record = parsed(text)
            contents.add(record)
            whole.add(text)
            if isinstance(record, End):
                whole.refuse_other(record.digests)
        except SealError as e:
            if last and not seal.fits(line[:-1]):  # the writer was stopped within this line
                return
            raise RecordError(f"{path}:{number}: {e}") from None
        except (RecordError, ContradictionError, EditedError) as e:
            raise RecordError(f"{path}:{number}: {e}") from None
        if isinstance(record, Run):
            seal.chained = record.chained
        yield record


def _foreign(line: bytes) -> str:
    """What a file is that is not a records file of this version, judged by its first line; "" if it is one."""
    for start, description in _FOREIGN.items():
        if line.startswith(start):
            return description
    if not line.startswith(_BEGIN) and not _BEGIN.startswith(line):  # the second covers a line that was cut off early
        return "not JSON as ptxdiff writes it: no records file, or one that was changed"
    schema = re.match(rb'{"record":"run",.*"schema":(\d{1,9})[,}]', line)
    if schema is None or int(schema[1]) == SCHEMA:
        return ""
    return (
        f"schema {int(schema[1])}, and this version reads {SCHEMA}: another version of ptxdiff wrote this file; run "
        "the cases again to make new records, and `ptxdiff gate --accept` them where it is a baseline"
    )


_BEGIN = b'{"record":"'
_FOREIGN = {
    b"\x1f\x8b": "a file compressed with gzip; unpack it first",
    b"\xef\xbb\xbf": "a byte order mark stands before the first line; restore the file as it was written",
    b"\xff\xfe": "UTF-16, and records are UTF-8; restore the file as it was written",
    b"\xfe\xff": "UTF-16, and records are UTF-8; restore the file as it was written",
    b'{"record":"digests"': (
        "a file of a baseline, with digests of accepted results; it is no run. Name the records of a run (`ptxdiff run "
        "CASES --records FILE` writes them), and compare them with the baseline: ptxdiff gate FILE --baseline FOLDER"
    ),
}


def _whole_items(path: Path) -> Iterator[Record]:
    """The records of a file, without the measurements of items that must be run again.

    These are the item of the last measurement, if the run was cut short, items that pytest skipped, and items with an
    error: a process that was killed, or a machine without memory, may give another result the next time.
    """
    records = list(read_lines(path))
    if records and isinstance(records[0], Run) and not records[0].chained:
        raise RecordError(f"{path}: this is a baseline, which no run can continue; name another file")
    measured = [r for r in records if isinstance(r, Result | Timing | InRegisters)]
    again = {_item(r) for r in measured if isinstance(r, Result) and (r.verdict == "error" or _is_skipped(r))}
    if measured and not isinstance(records[-1], End):
        again.add(_item(measured[-1]))
    return (r for r in records if not (isinstance(r, Result | Timing | InRegisters) and _item(r) in again))


def _is_skipped(r: Result) -> bool:
    return r.verdict == "not run" and r.words.startswith(SKIPPED)


def _item(record: Result | Timing | InRegisters) -> tuple[str, ...]:
    """The key of what pytest ran as one item: all timings of a case on a target are one item."""
    key = record.key
    return key.item if isinstance(record, Result) else ("timing", key.case, key.target)


def resumable(path: Path) -> RunRecords:
    """The records that a resumed run need not make again. Raises RecordError."""
    return collect(_whole_items(path), path)


def read(path: Path, *, texts: bool = True) -> RunRecords:
    """One records file, or the newest of a folder. Raises RecordError if there is none, or it is faulty.

    texts=False: leave texts in the store, for a reader who needs none of them.
    """
    if path.is_dir():
        path = newest_file(path)
    with collector_paused():
        found = in_order(collect(read_lines(path), path))
        if found.stored and texts:
            stored = TextStore(path.parent).load(found.stored, path)
            found.texts = ChainMap(stored, found.texts) if found.texts else stored
        return found


def runs_of(folder: Path) -> list[Path]:
    """The records files of a folder, in the order in which their runs began, whatever their names are.

    Runs that began in one second are in the order of their names. Raises RecordError if there is none, for a file
    without a head, which may be the newest run, killed at once, and for a baseline, whose files are no runs.
    """
    heads = []
    for file in record_files(folder):
        head = next(read_lines(file), None)
        if not isinstance(head, Run):
            raise RecordError(f"{file}: empty; a records file begins with a run record. Remove it, or run again")
        if not head.chained:
            raise RecordError(f"{file} belongs to a baseline, so {folder} is no folder of runs")
        heads.append((head.started, file))
    if not heads:
        raise RecordError(f"{folder}: no records (*{PLAIN} or *{COMPRESSED}) in this folder")
    return [file for _, file in sorted(heads)]


def newest_file(folder: Path) -> Path:
    """The records file of a folder's newest run. Raises RecordError as `runs_of` does."""
    return runs_of(folder)[-1]


def in_order(found: RunRecords) -> RunRecords:
    """The run with its items sorted by name. The order in which workers finished carries no information."""
    found.cases = dict(sorted(found.cases.items()))
    found.results.sort(key=lambda r: r.key.item)
    found.timings.sort(key=lambda t: (t.key.case, t.key.target))
    found.in_registers.sort(key=lambda t: (t.key.case, t.key.target))
    found.disagreements.sort(key=lambda d: (d.one, d.other))
    found.mutations.sort(key=lambda m: (m.case, m.subject, m.variant, m.target))
    found.proofs.sort(key=lambda p: (p.case, p.variant, p.target, p.against))
    return found


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection within: for work on whole runs, whose many objects have no cycles.

    It halves the time of reading 19,200 results, and saves two thirds of folding them into a history.
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
    known: dict[object, Mapping[str, Any]] = {}
    for record in records:
        if isinstance(record, Run):
            found = RunRecords(record, texts=Texts(), path=path)
        elif found is None:
            raise RecordError(f"{path}: the first line is no run record")
        elif isinstance(record, CaseInfo):
            found.cases[record.case] = record
        elif isinstance(record, Text):
            found.texts[record.hash] = record
        elif isinstance(record, StoredText):
            found.stored[record.hash] = record.kind
        elif isinstance(record, Result):
            _share(record, known)
            found.results.append(record)
        elif isinstance(record, Timing):
            found.timings.append(record)
        elif isinstance(record, InRegisters):
            found.in_registers.append(record)
        elif isinstance(record, Disagreement):
            found.disagreements.append(record)
        elif isinstance(record, Mutation):
            found.mutations.append(record)
        elif isinstance(record, Proof):
            found.proofs.append(record)
        else:
            found.end = record
    if found is None:
        raise RecordError(f"{path}: empty; a records file begins with a run record")
    return found


def _share(result: Result, known: dict[object, Mapping[str, Any]]) -> None:
    """Make equal mappings of results one object, because nothing changes them: they are a third of a run's memory."""
    fields = vars(result)
    for name in ("ranges", "fingerprint", "instructions"):
        if value := fields.get(name):
            fields[name] = known.setdefault((tuple(value), tuple(value.values())), value)


# Records together with their JSON, between processes and from the cache of an earlier run --------------------------
#
# A record is encoded once. Its JSON text is passed on with it, and becomes its line in a file.


class Sent(NamedTuple):
    """A record and its JSON, without a newline. Only `sent` and `received` make it, so the two always match.

    The JSON of a result has its digest (`Result.made`); the record of `sent`, which the run may still use, has not.
    """

    record: Record
    text: bytes


def sent(record: Record) -> Sent:
    """A record that this process made, encoded. Raises RecordError for a NaN or an infinity."""
    return Sent(record, with_digest(to_text(record)))


def received(text: bytes) -> Sent:
    """A record from its JSON. Raises RecordError."""
    return Sent(parsed(text), text)


def packed(records: Iterable[Sent]) -> str:
    """Several records as one text, a line each: pytest-xdist refuses JSON objects with large integers."""
    return "\n".join(text.decode() for _, text in records)


def unpacked(text: str) -> list[Sent]:
    """The records that `packed` packed. Raises RecordError."""
    return [received(line.encode()) for line in text.split("\n") if line]


def of_run(text: bytes, run: str) -> bytes:
    """The JSON of a stored result, marked as reused from the run of this id.

    A text that names a run already then has two members of one name, which `received` refuses.
    """
    return b'%b,"reused":%b}' % (text[:-1], _quoted(run))


def _quoted(word: str) -> bytes:
    return json.dumps(word).encode()


# Merges the runs of several machines: every result once; if two runs disagree, both results ------------------------

MACHINES = "machines"
"""The entry of a merged run's environment that holds the environments of the runs, in order."""


def merged(runs: Sequence[RunRecords]) -> RunRecords:
    """Several runs as one. Raises ValueError for none.

    Of results with the same key that agree, one is kept, with the devices of all; if assemblers differ, as in two
    Tritons, one for each. If results disagree (another verdict, other bits, or another form of the variant), both are
    kept. `conflicts` names them, and the variants that two runs define differently, on whatever targets. A result
    `not run` is dropped if another machine has run it.
    """
    if not runs:
        raise ValueError("there is no run to merge")
    if len(runs) == 1:
        return runs[0]
    texts = ChainMap(*[r.texts for r in runs])  # equal hashes, equal texts
    found = RunRecords(_head([r.run for r in runs]), texts=texts, path=runs[0].path)
    for run in runs:
        found.cases |= {name: case for name, case in run.cases.items() if name not in found.cases}
        found.timings += run.timings
        found.in_registers += run.in_registers
        found.disagreements += (d for d in run.disagreements if d not in found.disagreements)
        found.mutations += (m for m in run.mutations if m not in found.mutations)
        found.proofs += (p for p in run.proofs if p not in found.proofs)
    _merge_results(runs, found)
    _compare_definitions(runs, found)
    ends = [r.end for r in runs if r.end is not None]
    if len(ends) == len(runs):
        verdicts = Counter(r.outcome for r in found.results)
        found.end = End(max(e.finished for e in ends), max(e.seconds for e in ends), verdicts)
    return in_order(found)


def _head(runs: Sequence[Run]) -> Run:
    efforts = dict.fromkeys(r.effort for r in runs)
    return replace(
        runs[0],
        run_id="+".join(dict.fromkeys(r.run_id for r in runs)),
        started=min(r.started for r in runs),
        effort=" and ".join(efforts),
        environment={MACHINES: [machine for r in runs for machine in machines(r.environment)]},
    )


def machines(environment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The environments of the machines of a run: its own, or those of a merged run."""
    return list(environment.get(MACHINES, [environment]))


def _merge_results(runs: Sequence[RunRecords], into: RunRecords) -> None:
    ran = {r.key.item for run in runs for r in run.results if r.verdict != "not run"}
    by_key: dict[Key, list[Result]] = {}
    for number, run in enumerate(runs, 1):
        for result in run.results:
            if result.verdict == "not run" and result.key.item in ran:
                continue
            _add(by_key.setdefault(result.key, []), result, result.device or f"run {number}")
    for key, results in by_key.items():
        if len(results) > 1 and _disagreement(results):
            into.conflicts.append(Conflict(key, _disagreement(results)))
        into.results += results
    into.conflicts.sort(key=lambda c: c.key.item)


def _compare_definitions(runs: Sequence[RunRecords], into: RunRecords) -> None:
    """Note the variants that another run defines differently: old code on one target says nothing of new code there."""
    known: dict[tuple[str, str], Mapping[str, str]] = {}
    noted = {(c.key.case, c.key.variant) for c in into.conflicts}
    for run in runs:
        mine: dict[tuple[str, str], Result] = {}
        for result in run.results:
            if result.fingerprint:
                mine.setdefault((result.key.case, result.key.variant), result)
        for name, result in mine.items():
            now = _comparable(result.fingerprint)
            before = known.setdefault(name, now)
            if parts := sorted(n for n in before.keys() & now.keys() if before[n] != now[n]):
                if name not in noted:
                    into.conflicts.append(Conflict(result.key, f"{_OTHER_DEFINITION}: {', '.join(parts)}"))
                noted.add(name)
    into.conflicts.sort(key=lambda c: c.key.item)


def _comparable(fingerprint: Mapping[str, str]) -> dict[str, str]:
    """A definition without the parts whose digests are words: those differ in every process."""
    return {name: digest for name, digest in fingerprint.items() if " " not in digest}


_OTHER_DEFINITION = "the variant, its reference or its policies differ between the runs"


def _add(known: list[Result], result: Result, where: str) -> None:
    """Add a result to those of the same key, unless an equal one is there."""
    for k, other in enumerate(known):
        if not _disagreement([other, result]) and other.ptxas == result.ptxas:
            devices = dict.fromkeys(filter(None, (*other.device.split(", "), *result.device.split(", "))))
            known[k] = replace(other, device=", ".join(devices))
            return
    if known:
        remark = _disagreement([known[0], result]) or f"by {result.ptxas or 'no known assembler'}"
        result = replace(result, notes=(*result.notes, f"on {where}; {remark}"))
    known.append(result)


def _disagreement(results: Sequence[Result]) -> str:
    """What differs between results of one key; "" if they agree."""
    if len(_values(r.fingerprint.items() for r in results if r.fingerprint)) > 1:
        return _OTHER_DEFINITION
    verdicts = list(dict.fromkeys(r.outcome for r in results))
    if len(verdicts) > 1:
        return f"{' here, '.join(verdicts)} there"
    for block in zip(*(r.outputs_digest for r in results if r.outputs_digest), strict=False):
        if len({(b.first, b.count, b.digest) for b in block}) > 1:
            last = block[0].first + block[0].count - 1
            return f"the output bits differ, first among inputs {block[0].first} to {last}"
    return ""


def _values(items: Iterable[Iterable[tuple[str, str]]]) -> set[tuple[tuple[str, str], ...]]:
    return {tuple(sorted(i)) for i in items}
