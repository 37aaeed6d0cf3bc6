"""Files of lines, plain or compressed: `.jsonl`, or `.jsonl.zst`, which is one frame of Zstandard.

A writer flushes after each write, so that a killed process leaves a frame without an end whose lines can all be read.
The frame's window reaches over all lines: fifty results of one variant differ in few bytes. Readers decide by the
contents of a file, not by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ptxdiff.records.types import RecordError

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
            raise RecordError(f"{path}: bytes after the end of the compressed lines; restore it as it was written")
        try:
            made = frame.decompress(data, _CHUNK)
            if made:
                yield made
            while not frame.eof and not frame.needs_input:
                yield frame.decompress(b"", _CHUNK)
        except zstd.ZstdError as e:
            raise RecordError(f"{path}: the compressed lines were changed after they were written: {e}") from None
        data = frame.unused_data if frame.eof and frame.unused_data else file.read(_CHUNK)
