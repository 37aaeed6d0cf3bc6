"""The judge's rules on torch tensors: which results agree with the reference, and the classes of the others.

Both follow `ptxdiff.judging.differences.RULES`. Nothing here computes with rationals: a pair that float64 cannot decide
counts as a difference, and `doubtful` marks it for the plain judge. The plain judge also judges again the flagged
results of a sweep, and a sample of the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ptxdiff.judging.differences import Pairs, agreeing, classes
from ptxdiff.model.match import Match, NanPolicy
from ptxdiff.references.formats import Format


def agrees(fmt: Format, match: Match, nan: NanPolicy, expected: Tensor, got: Tensor) -> Tensor:
    """Whether int64 codes satisfy a policy, without regard to its domain.

    Never true for a pair that the plain judge fails.
    """
    found: Tensor = agreeing(Pairs(fmt, match, nan, expected, got))
    return found


def identical(fmt: Format, match: Match, nan: NanPolicy, expected: Tensor, got: Tensor) -> Tensor:
    """Whether int64 codes need no policy to agree; the others count as unchecked where the policy does not apply."""
    found: Tensor = Pairs(fmt, match, nan, expected, got).identical
    return found


def classify(fmt: Format, match: Match, nan: NanPolicy, expected: Tensor, got: Tensor) -> Tensor:
    """The `Difference` of each pair of int64 codes, as uint8, without regard to the domain."""
    found: Tensor = classes(Pairs(fmt, match, nan, expected, got), torch.where)
    return found.to(torch.uint8)


def doubtful(fmt: Format, match: Match, expected: Tensor, got: Tensor) -> Tensor:
    """Whether float64 cannot decide an absolute or relative bound, so that the plain judge must."""
    found: Tensor = Pairs(fmt, match, "payload", expected, got).doubt
    return found
