"""Records on their way: from the process that made them to the file, and from the cache of an earlier run.

A record is turned into JSON once. Whoever hands it on hands on that text with it, and a file's line is made of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from harness.records.encoding import parsed, to_text
from harness.records.types import Record


class Sent(NamedTuple):
    """A record and its JSON, without a newline. Made by `sent` and `received` alone, so the two say the same."""

    record: Record
    text: bytes


def sent(record: Record) -> Sent:
    """A record that was made here. Raises RecordError for a NaN or an infinity."""
    return Sent(record, to_text(record))


def received(text: bytes) -> Sent:
    """A record from its JSON. Raises RecordError."""
    return Sent(parsed(text), text)


def packed(records: Iterable[Sent]) -> str:
    """Several as one text, a line each. pytest-xdist carries texts; of JSON objects it refuses large integers."""
    return "\n".join(text.decode() for _, text in records)


def unpacked(text: str) -> list[Sent]:
    """What `packed` packed. Raises RecordError."""
    return [received(line.encode()) for line in text.split("\n") if line]


def of_run(text: bytes, run: str) -> bytes:
    """The JSON of a result that was kept without saying so, as one that is reused from the run of this id.

    A text that names a run already then has two members of one name, which `received` refuses.
    """
    return b'%b,"reused":%b}' % (text[:-1], _quoted(run))


def _quoted(word: str) -> bytes:
    return json.dumps(word).encode()
