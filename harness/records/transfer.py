"""Records together with their JSON, between processes and from the cache of an earlier run.

A record is encoded once. Its JSON text is passed on with it, and becomes its line in a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from ptxdiff.records.encoding import parsed, to_text
from ptxdiff.records.types import Record


class Sent(NamedTuple):
    """A record and its JSON, without a newline. Only `sent` and `received` make it, so the two always match."""

    record: Record
    text: bytes


def sent(record: Record) -> Sent:
    """A record of this process, encoded. Raises RecordError for a NaN or an infinity."""
    return Sent(record, to_text(record))


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
