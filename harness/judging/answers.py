"""A cache of references' answers in one process, because all variants and targets of a case are judged on the same
inputs.

The key is the case, the code of the reference and of all functions that it calls, the backend whose results are judged,
and the bits of the inputs. So a reference that was changed in place, such as by a planted mistake, has another key.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np

from ptxdiff.model.arguments import Codes, format_of
from ptxdiff.model.case import Case
from ptxdiff.model.identity import digest, digest_with_code
from ptxdiff.model.match import read_only
from ptxdiff.model.reference import ReferenceFault, apply_reference
from ptxdiff.model.variants import Reference

KEPT_CODES = 1 << 23  # for all answers together: 64 MB
ASKED_AGAIN = 1 << 18
"""Answers for more input codes than this are not kept: such sets are judged in pieces, and each piece once."""
PIECE = 1 << 18
"""Elements for which a reference is evaluated at once. It makes some twenty arrays of 64-bit integers on the way: of
three million elements of four codes they took gigabytes, and did not stay in a core's cache."""


_met: ContextVar[dict[int, tuple[Reference, str]] | None] = ContextVar("_met", default=None)


results_of: ContextVar[str] = ContextVar("results_of", default="")
"""The backend whose results are judged. It is part of the key, because a reference may be refused for one backend."""


@contextlib.contextmanager
def references_digested_once() -> Iterator[None]:
    """Within this block, digest each reference once: all setups of an item are judged by the same one.

    Mistakes are planted between items.
    """
    before = _met.set({})
    try:
        yield
    finally:
        _met.reset(before)


def _code(reference: Reference) -> str:
    met = _met.get()
    if met is None:
        return digest_with_code(reference, exact=True)
    if id(reference) not in met:
        met[id(reference)] = reference, digest_with_code(reference, exact=True)  # held: no other gets its id
    return met[id(reference)][1]


class Answers:
    """The last answers, read-only.

    The key has the id of the case, which is kept alive so that no other object gets that id.
    """

    def __init__(self, most: int = KEPT_CODES) -> None:
        self.most = most
        self._kept: OrderedDict[tuple[Any, ...], tuple[Case, dict[str, Codes]]] = OrderedDict()
        self._codes = 0

    def __call__(
        self, case: Case, reference: Reference, codes: Mapping[str, Codes], flushing: bool = False
    ) -> dict[str, Codes]:
        """The result of `apply_reference`; raises what it raises."""
        if sum(c.size for c in codes.values()) > ASKED_AGAIN:
            return _in_pieces(case, reference, codes, flushing)
        key = id(case), _code(reference), flushing, results_of.get(), digest(dict(codes))
        if key not in self._kept:
            made = {n: read_only(c) for n, c in apply_reference(case, reference, codes, flushing).items()}
            self._kept[key] = case, made
            self._codes += _size(made)
            while self._codes > self.most and len(self._kept) > 1:
                self._codes -= _size(self._kept.popitem(last=False)[1][1])
        self._kept.move_to_end(key)
        return dict(self._kept[key][1])


def _in_pieces(case: Case, reference: Reference, codes: Mapping[str, Codes], flushing: bool) -> dict[str, Codes]:
    """The result of `apply_reference` for many elements, one piece after the other.

    A reference that fails on a piece, or returns another number of codes for it, is applied to all elements at once,
    for the error that names all.
    """
    units = {n: format_of(a).codes_per_unit for n, a in case.inputs.items()}
    counts = {c.size // units[n] if c.ndim == 1 else -1 for n, c in codes.items()}
    count = counts.pop()
    if not case.elementwise or counts or count <= PIECE:
        return apply_reference(case, reference, codes, flushing)
    made: dict[str, list[Codes]] = {name: [] for name in case.outputs}
    for first in range(0, count, PIECE):
        some = {n: c[first * units[n] : (first + PIECE) * units[n]] for n, c in codes.items()}
        try:
            answer = apply_reference(case, reference, some, flushing)
        except ReferenceFault:
            return apply_reference(case, reference, codes, flushing)
        for name, argument in case.outputs.items():
            wanted = min(PIECE, count - first) * format_of(argument).codes_per_unit
            if answer[name].shape != (wanted,):
                return apply_reference(case, reference, codes, flushing)
            made[name].append(answer[name])
    return {name: np.concatenate(pieces) for name, pieces in made.items()}


def _size(answer: Mapping[str, Codes]) -> int:
    return sum(c.size for c in answer.values())


answers = Answers()
