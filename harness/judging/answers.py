"""Answers of references, kept in a process: variants, targets and readings of a case are judged on the same inputs.

An answer is found again by the case, by the code of the reference with all that it calls, and by the bits of the
inputs. A reference that was changed in place, as by a planted mistake, is another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from harness.model.case import Case
from harness.model.codes import Codes
from harness.model.identity import digest, digest_with_code
from harness.model.match import read_only
from harness.model.reference import apply_reference
from harness.model.variants import Reference

KEPT_CODES = 1 << 23  # of all answers together: 64 MB
ASKED_AGAIN = 1 << 18
"""Codes of inputs up to which an answer is kept: larger sets are judged piece by piece, and each piece once."""


class Answers:
    """The last answers, read-only. Cases are told apart as objects, and kept alive so that no other gets their ids."""

    def __init__(self, most: int = KEPT_CODES) -> None:
        self.most = most
        self._kept: OrderedDict[tuple[Any, ...], tuple[Case, dict[str, Codes]]] = OrderedDict()
        self._codes = 0

    def __call__(
        self, case: Case, reference: Reference, codes: Mapping[str, Codes], flushing: bool = False
    ) -> dict[str, Codes]:
        """What `apply_reference` gives; raises what it raises."""
        if sum(c.size for c in codes.values()) > ASKED_AGAIN:
            return apply_reference(case, reference, codes, flushing)
        key = id(case), digest_with_code(reference, exact=True), flushing, digest(dict(codes))
        if key not in self._kept:
            made = {n: read_only(c) for n, c in apply_reference(case, reference, codes, flushing).items()}
            self._kept[key] = case, made
            self._codes += _size(made)
            while self._codes > self.most and len(self._kept) > 1:
                self._codes -= _size(self._kept.popitem(last=False)[1][1])
        self._kept.move_to_end(key)
        return dict(self._kept[key][1])


def _size(answer: Mapping[str, Codes]) -> int:
    return sum(c.size for c in answer.values())


answers = Answers()
