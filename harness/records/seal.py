"""The checksum at the end of every line of a records file.

A line ends in `,"sum":"0123456789abcdef"}`. The sum covers the exact bytes before it and the previous line's sum. So a
flipped bit, or a line that was lost, repeated, moved or taken from another run, is detected at that line. A file that
lost its last lines has no `end` line. In a baseline, which people review as a diff, a line's sum covers that line
alone, and only the `end` line's sum covers all lines before it.

The sum is SHA-256, shortened to 64 bits, which makes an accidental collision very unlikely. A CRC would not be faster
(a line of 2 KiB takes 2 us, its JSON 80), and it is linear: changes can cancel out.
"""

from __future__ import annotations

import hashlib

_MARK, _LAST = b',"sum":"', b'"}'
_DIGITS = 16
_TAIL = len(_MARK) + _DIGITS + len(_LAST)
_END = b'{"record":"end"'


class SealError(ValueError):
    """A line that was changed after it was written."""


class Seal:
    """The running checksum of one file. chained: False for a baseline; the first line is the same in both."""

    def __init__(self, *, chained: bool = True) -> None:
        self.chained = chained
        self._sum = b""

    def copy(self) -> Seal:
        """A copy of the present state, to return to."""
        same = Seal(chained=self.chained)
        same._sum = self._sum
        return same

    def close(self, text: bytes) -> bytes:
        """A JSON object as the next line, with its sum and a newline."""
        body = text[:-1]
        return body + _MARK + self._next(body) + _LAST + b"\n"

    def open(self, line: bytes) -> bytes:
        """The JSON object of the next line, without its sum. Raises SealError for a line that was changed."""
        if line[-_TAIL : -_DIGITS - len(_LAST)] != _MARK or not line.endswith(_LAST):
            raise SealError(_unsealed(line))
        body, before = line[:-_TAIL], self._sum
        if line[-_DIGITS - len(_LAST) : -len(_LAST)] != self._next(body):
            self._sum = before
            raise SealError(
                "the checksum is wrong: this line was changed after it was written"
                + (", or lines before it were lost, repeated or moved" if before else "")
            )
        return body + b"}"

    def fits(self, line: bytes) -> bool:
        """Whether this could be the next line. The state stays as it is."""
        try:
            self.copy().open(line)
        except SealError:
            return False
        return True

    def _next(self, body: bytes) -> bytes:
        self._sum = _digest(self._sum + body)
        return self._sum if self.chained or body.startswith(_END) else _digest(body)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest()[:_DIGITS].encode()


def _unsealed(line: bytes) -> str:
    if not line.strip():
        return "an empty line; records files have none"
    if line.endswith(b"\r"):
        return "the line ends in CR LF: it was converted, e.g. by git's autocrlf; restore it as it was written"
    return "the line does not end in its checksum: it was changed after it was written, or is no record"
