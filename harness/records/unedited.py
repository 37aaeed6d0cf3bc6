"""Digests of what a run wrote, by which a reader knows that a record is still the one that the run made.

A line's checksum (`seal`) covers the bytes of a file. Whoever reads records, changes one, and writes them again gets
right checksums. So a result carries a digest of its other fields, `made`, from the moment at which it is made: through
worker processes, reuse, exports and resumed runs. The `end` line carries one digest for all records of each kind, in
any order. So a result that was edited is known by itself, and a head, a case or a text that was edited, dropped, added
or taken from another run is known at the end.

This is no signature: there is no secret, and whoever computes these digests anew can write what they like.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

_DIGITS = 12
_RESULT = b'{"record":"result",'
_MADE = re.compile(rb',"made":"([0-9a-f]{%d})"(?=[,}])' % _DIGITS)
# A result that a later run reuses is the one that was made. Quotes within a string have a backslash before them.
_REUSED = re.compile(rb',"reused":"(?:[^"\\]|\\.)*"(?=[,}])')
_MEMBER, _LAST, _NAMES_A_RUN = b',"made":"', b'"}', b',"reused":"'
_TEXT = re.compile(rb'\{"record":"(?:stored )?text","hash":"([^"\\]*)","kind":"([^"\\]*)"')
_KIND = re.compile(rb'\{"record":"(?:stored )?([a-z ]+)"')


class EditedError(ValueError):
    """A record is not the one that a run made. The message says what was edited."""


def with_digest(text: bytes) -> bytes:
    """The JSON of a result that was just made, with its digest as the last member. Other records stay as they are."""
    if not text.startswith(_RESULT):
        return text
    plain = _MADE.sub(b"", text) if _MEMBER in text else text
    counted = _REUSED.sub(b"", plain) if _NAMES_A_RUN in plain else plain
    return b'%b,"made":"%b"}' % (plain[:-1], _digest(counted))


def refuse_edited(text: bytes, made: str) -> None:
    """Raise EditedError for the JSON of a result whose digest is not that of its other fields. made: "" for none."""
    if made and _of_result(text) != made.encode():
        raise EditedError("it was edited after the run made it: its digest is not that of its fields")


def _of_result(text: bytes) -> bytes:
    return _digest(_parts(text)[0])


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest()[:_DIGITS].encode()


def _parts(text: bytes) -> tuple[bytes, list[bytes]]:
    """The JSON of a result without its digest and the run that it was reused from, and these two, as far as it has
    them. Nearly all have the digest as their last member and were not reused."""
    if _NAMES_A_RUN not in text:
        at = len(text) - _DIGITS - len(_LAST)
        if text[at - len(_MEMBER) : at] == _MEMBER and _MEMBER not in text[: at - len(_MEMBER)]:
            return text[: at - len(_MEMBER)] + b"}", [text[at : at + _DIGITS]]
    plain = _MADE.sub(b"", text)
    return _REUSED.sub(b"", plain), [*_MADE.findall(text), *(m[0] for m in _REUSED.finditer(plain))]


class Whole:
    """A digest of the records of each kind, whatever their order. Texts count by their hash, wherever they lie."""

    def __init__(self) -> None:
        self._sums: dict[str, int] = {}
        self._made = self._unmade = 0  # results with and without a digest

    def copy(self) -> Whole:
        """A copy of the present state, to return to."""
        same = Whole()
        same._sums, same._made, same._unmade = dict(self._sums), self._made, self._unmade
        return same

    def add(self, text: bytes) -> None:
        """Count the JSON of a record. The `end` line itself counts for nothing."""
        kind, counted = "result", text
        if text.startswith(_RESULT):
            _, names = _parts(text)
            made = bool(names) and not names[0].startswith(b",")
            self._made += made
            self._unmade += not made
            counted = b" ".join(names) if made else text
        else:
            found = _KIND.match(text)
            kind = found[1].decode() if found else ""
            if kind == "end":
                return
            if kind == "text" and (named := _TEXT.match(text)):
                counted = b" ".join(named.groups())
        digest = int.from_bytes(hashlib.sha256(counted).digest()[:8])
        self._sums[kind] = (self._sums.get(kind, 0) + digest) % (1 << 64)

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each kind; empty if there are results and none has a digest, as in older records."""
        if self._unmade and not self._made:
            return {}
        return {kind: f"{n:016x}" for kind, n in sorted(self._sums.items())}

    def refuse_other(self, said: Mapping[str, str]) -> None:
        """Raise EditedError if these are not the records that the `end` line counts. said: empty in older records."""
        if not said:
            if self._made:
                raise EditedError(f"no digests, although {self._made} results have theirs: this line was edited")
            return
        found = {kind: f"{n:016x}" for kind, n in self._sums.items()}
        if other := [kind for kind in sorted({*said, *found}) if said.get(kind) != found.get(kind)]:
            names = " and of ".join(_NAMES.get(kind, f"kind {kind!a}") for kind in other)
            raise EditedError(
                f"the digest of {names} is not the one with which the run ended: edited, lost, added, or of another run"
            )


_NAMES = {
    "run": "the head (line 1: environment, version, arguments, effort)",
    "case": "the case lines",
    "text": "the text lines (asm, PTX, SASS)",
    "result": "the result lines",
    "timing": "the timing lines",
}
