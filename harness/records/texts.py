"""Texts of runs, and the store that the runs of one folder share: each text once, by its digest.

The store is the folder `texts` beside the records. Every run that needs a text which the store lacks writes one file
there, a pack: lines `{"hash": ..., "text": ...}`, compressed, in the order in which the run met them. A pack has one
writer and no reader relies on its name, so runs may write at the same time; a text that two of them wrote is harmless.
A text is flushed before the record that names it, and is used only if its digest is its name, so that an edited pack
is detected. `prune` waits for no run: it refuses while one writes.

Files of lines are plain, `.jsonl`, or compressed, `.jsonl.zst`, which is one frame of Zstandard, and behind it the
summary of a run that ended (`ptxdiff.records.history_facts`). A writer flushes after each write, so that a killed
process leaves a frame without an end whose lines can all be read. The frame's window reaches over all lines: fifty
results of one variant differ in few bytes. Readers decide by the contents of a file, not by its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from ptxdiff.records.types import RecordError, Text, TextKind, WriteError, text_hash

FOLDER = "texts"
_PACK = "*.zst"
_HASH = slice(len('{"hash":"'), len('{"hash":"') + 16)


class Texts(MutableMapping[str, Text]):
    """Texts by hash, compressed in memory: a run has 100 MB of PTX, of which a report shows some."""

    def __init__(self) -> None:
        self._packed: dict[str, tuple[TextKind, bytes]] = {}

    def __setitem__(self, name: str, text: Text) -> None:
        from backports import zstd

        self._packed[name] = text.kind, zstd.compress(text.text.encode("utf-8", "surrogatepass"), 1)

    def __getitem__(self, name: str) -> Text:
        from backports import zstd

        kind, packed = self._packed[name]
        return Text(name, kind, zstd.decompress(packed).decode("utf-8", "surrogatepass"))

    def __delitem__(self, name: str) -> None:
        del self._packed[name]

    def __contains__(self, name: object) -> bool:
        return name in self._packed

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


@functools.cache
def _decoder() -> Callable[[bytes], Any]:
    """A decoder of JSON: msgspec's, which takes a fifth of the time, where it is."""
    try:
        import msgspec
    except ImportError:  # it comes with the extra `report`
        return json.loads
    found: Callable[[bytes], Any] = msgspec.json.Decoder().decode
    return found


class TextStore:
    """The store of a folder of runs. Making the object touches no file."""

    def __init__(self, runs: Path) -> None:
        self.folder = runs / FOLDER

    def read(self, faults: dict[Path, str], wanted: Mapping[str, object] | None = None) -> Iterator[tuple[str, str]]:
        """The stored texts with their hashes, from the newest pack on; of `wanted` alone, if it is given.

        Texts whose digest is not their name are left out; `faults` receives what is wrong with which pack.
        """
        decode = _decoder()
        for pack in sorted(self.folder.glob(_PACK), reverse=True):
            try:
                for line, _ in lines_of(pack):
                    name = line[_HASH].decode("ascii", "replace")
                    if not line or (wanted is not None and name not in wanted):
                        continue
                    try:
                        text = decode(line)["text"]
                    except (ValueError, KeyError, TypeError):  # the writer was stopped within this line
                        text = None
                    if isinstance(text, str) and text_hash(text) == name:
                        yield name, text
                    else:
                        faults.setdefault(pack, f"its text {name} was changed after it was written, or is incomplete")
            except RecordError as e:
                faults.setdefault(pack, str(e).removeprefix(f"{pack}").lstrip(":0123456789 "))

    def load(self, wanted: Mapping[str, TextKind], path: Path) -> Texts:
        """The texts that the records of `path` name. Raises RecordError, which names a text that is missing."""
        found, faults = Texts(), dict[Path, str]()
        for name, text in self.read(faults, wanted):
            if name not in found:
                found[name] = Text(name, wanted[name], text)
                if len(found) == len(wanted):
                    return found
        missing = [name for name in wanted if name not in found]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            why = "".join(f"; {pack}: {fault}" for pack, fault in faults.items())
            raise RecordError(
                f"{path}: the text {missing[0]} ({wanted[missing[0]]}){more} is not in {self.folder}{why}; restore "
                "that folder as it was written: records of a folder share their texts there"
            )
        return found

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        held = self.lock(how)
        try:
            yield
        finally:
            os.close(held)

    def lock(self, how: int = fcntl.LOCK_SH) -> int:
        """A descriptor that holds a lock on the store: shared by all who write, or of one who removes texts."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as e:
            raise WriteError(f"{self.folder}: {e.strerror or e}") from e
        try:
            fcntl.flock(held, how)
        except BaseException as e:
            os.close(held)
            if isinstance(e, BlockingIOError):
                raise WriteError(f"{self.folder}: a run is writing texts; try again when it has ended") from None
            raise
        return held

    def prune(self, used: Mapping[str, object]) -> tuple[int, int]:
        """Write the texts that are `used` into one pack, and remove all other packs: the bytes before and after.

        Raises WriteError while a run writes here, and RecordError for a damaged pack: it may hold what is used.
        """
        with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
            packs, faults = sorted(self.folder.glob(_PACK)), dict[Path, str]()
            before = sum(p.stat().st_size for p in packs)
            made = Pack(self.folder, ".tmp")
            try:
                kept: set[str] = set()
                for name, text in self.read(faults, used):
                    if name not in kept:
                        kept.add(name)
                        made.add(name, text)
                if missing := [name for name in used if name not in kept]:
                    faults_text = "".join(f"; {pack}: {why}" for pack, why in faults.items())
                    raise RecordError(f"{self.folder}: nothing was removed: text {missing[0]} is missing{faults_text}")
                made.close()
                after = made.path.stat().st_size if kept else 0
                if kept:
                    made.path.replace(made.path.with_suffix(".zst"))
                for pack in packs:
                    pack.unlink()
            finally:
                made.close()
                made.path.unlink(missing_ok=True)
        return before, after


class Pack:
    """One new file of a store, with one writer."""

    def __init__(self, folder: Path, suffix: str = ".zst") -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self.path = folder / f"{stamp}-{secrets.token_hex(4)}{suffix}"
        self._compressor = Compressor()
        self._file: BinaryIO = self.path.open("xb", buffering=0)

    def add(self, name: str, text: str) -> None:
        """Append a text; it is in the file when this returns."""
        line = json.dumps({"hash": name, "text": text}, ensure_ascii=False, separators=(",", ":"))
        self._compressor.write(self._file, line.encode("utf-8", "replace") + b"\n")

    def close(self) -> None:
        """End the file. A second call does nothing."""
        if not self._file.closed:
            with contextlib.suppress(OSError):
                self._compressor.end(self._file)
            self._file.close()


class StoreWriter:
    """Adds the texts of one run to a store. From now until `close`, no text is removed from it."""

    def __init__(self, runs: Path) -> None:
        self._store = TextStore(runs)
        self._held = self._store.lock()
        self._known = {name for name, _ in self._store.read({})}
        self._pack: Pack | None = None

    def add(self, text: Text) -> None:
        """Store a text, unless it is stored. Raises OSError."""
        if text.hash in self._known:
            return
        if self._pack is None:
            self._pack = Pack(self._store.folder)
        self._pack.add(text.hash, text.text)
        self._known.add(text.hash)

    def close(self) -> None:
        """End this run's pack. A second call does nothing."""
        if self._pack is not None:
            self._pack.close()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


# Files of lines ----------------------------------------------------------------------------------------------------

PLAIN, COMPRESSED = ".jsonl", ".jsonl.zst"
LEVEL = 9
_MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK = 1 << 20


def is_records_name(name: str) -> bool:
    """Whether a file's name is one of records."""
    return name.endswith((PLAIN, COMPRESSED))


def record_files(folder: Path) -> list[Path]:
    """The records files of a folder, of both kinds, by name: a run's name begins with its time."""
    return sorted(p for p in folder.iterdir() if is_records_name(p.name)) if folder.is_dir() else []


class Compressor:
    """Writes one frame, a flushed block a call."""

    def __init__(self) -> None:
        from backports import zstd

        # The seal of each line covers its contents; the frame's checksum also covers their order and number.
        parameter = zstd.CompressionParameter
        options: dict[int, int] = {parameter.compression_level: LEVEL, parameter.checksum_flag: 1}
        self._zstd = zstd.ZstdCompressor(options=options)

    def block(self, data: bytes) -> bytes:
        """The compressed bytes of `data`, from which a reader can make all of it."""
        return self._zstd.compress(data, self._zstd.FLUSH_BLOCK)

    def write(self, file: BinaryIO, data: bytes) -> None:
        """Write a block. Raises OSError; the frame then cannot go on."""
        write_all(file, self.block(data))

    def end(self, file: BinaryIO) -> None:
        """Write the frame's end."""
        write_all(file, self._zstd.flush())


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write to an unbuffered file, which may take less than it is given. Raises OSError."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def lines_of(path: Path) -> Iterator[tuple[bytes, bool]]:
    """The lines of a file, each with whether it is the last, after which there is no newline; that may be empty.

    Raises RecordError if the file cannot be read, or its compressed bytes are damaged. A frame without an end is no
    damage: its writer was stopped. Memory holds one piece of the file at a time.
    """
    rest: bytes = b""
    for chunk in _chunks(path):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line, False
    yield rest, True


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            begin = file.read(_CHUNK)
            if begin[: len(_MAGIC)] == _MAGIC:
                yield from _decompressed(path, file, begin)
                return
            while begin:
                yield begin
                begin = file.read(_CHUNK)
    except OSError as e:
        raise RecordError(f"{path}: {e.strerror or e}") from e


def _decompressed(path: Path, file: BinaryIO, data: bytes) -> Iterator[bytes]:
    from backports import zstd

    frame = zstd.ZstdDecompressor()
    while data:
        if frame.eof:
            if fault := _fault_of_appendix(data + file.read()):
                raise RecordError(f"{path}: {fault}; restore it as it was written")
            return
        try:
            made = frame.decompress(data, _CHUNK)
            if made:
                yield made
            while not frame.eof and not frame.needs_input:
                yield frame.decompress(b"", _CHUNK)
        except zstd.ZstdError as e:
            raise RecordError(f"{path}: the compressed lines were changed after they were written: {e}") from None
        data = frame.unused_data if frame.eof and frame.unused_data else file.read(_CHUNK)


# What follows the lines of a compressed file -------------------------------------------------------------------------
#
# A skippable frame, which other readers of Zstandard pass over: magic, length, digest of what follows, contents, and at
# the end the length of the whole frame, by which it is found from the end of the file.

_SKIPPABLE = b"\x5d\x2a\x4d\x18"
_LENGTH = 4
_HEAD = len(_SKIPPABLE) + _LENGTH
_SUM = hashlib.sha256().digest_size


def appended(contents: bytes) -> bytes:
    """The bytes that put `contents` behind the lines of a compressed file. Raises ValueError from 4 GiB on."""
    size = _SUM + len(contents) + _LENGTH
    if size >= 1 << 8 * _LENGTH:
        raise ValueError("too much for one frame")
    tail = contents + (_HEAD + size).to_bytes(_LENGTH, "little")
    return _SKIPPABLE + size.to_bytes(_LENGTH, "little") + hashlib.sha256(tail).digest() + tail


def without_appendix(data: bytes) -> tuple[memoryview, memoryview | None]:
    """The bytes of a file in two parts: its lines, and the contents of a whole, unchanged appendix; None for none."""
    view = memoryview(data)
    begin = len(view) - int.from_bytes(view[-_LENGTH:], "little")
    if not 0 < begin <= len(view) - _HEAD - _SUM - _LENGTH:
        return view, None
    frame = view[begin:]
    size, contents = frame[len(_SKIPPABLE) : _HEAD], frame[_HEAD + _SUM :]
    whole = frame[: len(_SKIPPABLE)] == _SKIPPABLE and int.from_bytes(size, "little") == len(frame) - _HEAD
    if not whole or hashlib.sha256(contents).digest() != frame[_HEAD : _HEAD + _SUM]:
        return view, None
    return view[:begin], contents[:-_LENGTH]


def _fault_of_appendix(data: bytes | memoryview) -> str:
    """What is wrong with the bytes behind the lines; "" if they are an appendix, or the beginning of one.

    Its writer may have been stopped within it, which costs no line.
    """
    begin, size = bytes(data[: len(_SKIPPABLE)]), int.from_bytes(data[len(_SKIPPABLE) : _HEAD], "little")
    if not _SKIPPABLE.startswith(begin) or len(data) > _HEAD + max(size, _SUM + _LENGTH):
        return "bytes after the end of the compressed lines"
    if len(data) < _HEAD + size:
        return ""
    if hashlib.sha256(data[_HEAD + _SUM :]).digest() != data[_HEAD : _HEAD + _SUM]:
        return "the summary behind the compressed lines was changed after it was written"
    return ""
