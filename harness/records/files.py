"""Records files: writing them as results come, and reading one back."""

from __future__ import annotations

import contextlib
import gc
import json
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.records.encoding import from_json, to_line
from harness.records.lock import FileLock
from harness.records.types import (
    CaseInfo,
    Disagreement,
    End,
    Record,
    RecordError,
    Result,
    Run,
    RunRecords,
    Text,
    Timing,
    WriteError,
)


class Writer:
    """Appends records to a file as they come, at once, and stores each text once.

    The path's folders are made. Safe to use from several threads of one process; no other process can write the file
    meanwhile (under pytest-xdist only the controller writes). resume: go on with a file that an earlier run left.
    lock: of the file, where the caller holds it already; `close` releases it.
    Raises WriteError where the file cannot be written, now or later; what was written before stays readable.
    """

    def __init__(self, path: Path, *, resume: bool = False, lock: FileLock | None = None) -> None:
        self.path = path
        self._held = lock or FileLock(path)
        self._texts: set[str] = set()
        self._cases: set[str] = set()
        self._lock = threading.Lock()
        try:
            if resume:
                self._take_up()
            # Unbuffered: what a full disk refuses must not come up again when the file is closed.
            self._file = path.open("ab" if resume else "wb", buffering=0)
        except BaseException as e:
            self._held.release()
            if isinstance(e, OSError):
                raise WriteError(f"{path}: {e.strerror or e}") from e
            raise

    def _take_up(self) -> None:
        """Know what the file has, and drop what a cut-off run left half done, and what stood at its end."""
        kept = [r for r in _whole_items(self.path) if not isinstance(r, Disagreement | End)]
        self._texts = {r.hash for r in kept if isinstance(r, Text)}
        self._cases = {r.case for r in kept if isinstance(r, CaseInfo)}
        whole = "".join(to_line(r) for r in kept)
        partial = self.path.with_suffix(".partial")
        partial.write_text(whole, encoding="utf-8")
        partial.replace(self.path)

    def write(self, *records: Record) -> None:
        """Append records, all of an item's in one stroke; a text or a case that the file already has is dropped."""
        with self._lock:
            left = memoryview("".join(to_line(r) for r in records if self._is_new(r)).encode())
            whole = self._file.tell()
            try:
                while left:
                    left = left[self._file.write(left) :]
            except OSError as e:
                with contextlib.suppress(OSError):
                    self._file.truncate(whole)
                raise WriteError(f"{self.path}: {e.strerror or e}") from e

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
        self._held.release()


def read_lines(path: Path) -> Iterator[Record]:
    """The records of one file. A last line cut off in mid-write is dropped; any other fault raises RecordError."""
    lines = _lines(path)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            obj = json.loads(line.decode())
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
    """The records of a file, without the measurements of items that must be run again.

    That is the item of the last measurement, where the run did not come to its end, and items with an error: a process
    that was killed, or a machine without memory, gives another result on a better day.
    """
    records = list(read_lines(path))
    measured = [r for r in records if isinstance(r, Result | Timing)]
    again = {_item(r) for r in measured if isinstance(r, Result) and r.verdict == "error"}
    if measured and not isinstance(records[-1], End):
        again.add(_item(measured[-1]))
    return (r for r in records if not (isinstance(r, Result | Timing) and _item(r) in again))


def _item(record: Result | Timing) -> tuple[str, ...]:
    """What pytest ran as one item: a case's timings on a target are one."""
    key = record.key
    return key.item if isinstance(record, Result) else ("timing", key.case, key.target)


def resumable(path: Path) -> RunRecords:
    """What a run that goes on with a file need not do again. Raises RecordError."""
    return collect(_whole_items(path), path)


def read(path: Path) -> RunRecords:
    """One records file, or the newest `*.jsonl` of a folder. Raises RecordError where there is none or it is faulty."""
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"))
        if not files:
            raise RecordError(f"{path}: no records (*.jsonl) in this folder")
        path = files[-1]
    with collector_paused():
        return in_order(collect(read_lines(path), path))


def in_order(found: RunRecords) -> RunRecords:
    """The run with its items in order of name, each's results as they came: when which worker was done says nothing."""
    found.cases = dict(sorted(found.cases.items()))
    found.results.sort(key=lambda r: r.key.item)
    found.timings.sort(key=lambda t: (t.key.case, t.key.target))
    found.disagreements.sort(key=lambda d: (d.one, d.other))
    return found


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
        elif isinstance(record, Disagreement):
            found.disagreements.append(record)
        else:
            found.end = record
    if found is None:
        raise RecordError(f"{path}: empty; a records file begins with a run record")
    return found
