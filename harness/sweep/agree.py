"""The judge's rules on torch tensors: which results agree with the reference, and how others differ.

Both follow `harness.judging.differences.RULES`. Nothing here computes with rationals: what float64 cannot decide counts
as a difference, and `doubtful` tells where. There the plain judge decides, which also judges again what a sweep flags,
and a sample of what it passes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.judging.differences import Pairs, agreeing, classes
from harness.model.match import Match, NanPolicy
from references.formats import Format


def agrees(fmt: Format, match: Match, nan: NanPolicy, expected: Tensor, got: Tensor) -> Tensor:
    """Where int64 codes satisfy a policy, its domain left aside. Never true where the plain judge says no."""
    found: Tensor = agreeing(Pairs(fmt, match, nan, expected, got))
    return found


def classify(fmt: Format, match: Match, nan: NanPolicy, expected: Tensor, got: Tensor) -> Tensor:
    """The `Difference` of each pair of int64 codes, uint8, the domain left aside."""
    found: Tensor = classes(Pairs(fmt, match, nan, expected, got), torch.where)
    return found.to(torch.uint8)


def doubtful(fmt: Format, match: Match, expected: Tensor, got: Tensor) -> Tensor:
    """Where float64 cannot decide an absolute or relative bound, so that the plain judge has to."""
    found: Tensor = Pairs(fmt, match, "payload", expected, got).doubt
    return found
