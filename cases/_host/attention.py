"""The expected result of attention, step by step."""

import numpy as np
import torch

from ptxdiff.references import arithmetic, conversion
from ptxdiff.references.formats import F16, F32, encode

BLOCK, SCALE = 32, float(np.float32(np.log2(np.e) / np.sqrt(32)))


def attended(multiply, power):
    """The kernel's steps on codes; a block of weights is first rounded to float16. multiply: a b + c, with a and b in
    float16; power: 2^x."""

    def scaled(x):
        return power(arithmetic.mul(x, torch.full_like(x, encode(F32, SCALE))))

    def reference(q, k, v):
        rows = q.shape[0]
        largest = torch.full((rows,), encode(F32, float("-inf")), device=q.device)
        sums, total = (torch.zeros(rows, n, dtype=torch.int64, device=q.device) for n in (16, v.shape[1]))
        ones = torch.full((BLOCK, 16), encode(F16, 1.0), device=q.device)
        for keys, rest in zip(k.split(BLOCK), v.split(BLOCK), strict=True):
            scores = multiply(q, keys.T, torch.zeros(rows, BLOCK, dtype=torch.int64, device=q.device))
            larger = largest
            for column in scores.unbind(1):
                larger = arithmetic.maximum(larger, column)
            weights = scaled(arithmetic.sub(scores, larger[:, None].expand_as(scores)))
            weights = conversion.convert(weights, source=F32, target=F16)
            shrink = scaled(arithmetic.sub(largest, larger))[:, None]
            sums = multiply(weights, ones, arithmetic.mul(sums, shrink.expand_as(sums)))
            total = multiply(weights, rest, arithmetic.mul(total, shrink.expand_as(total)))
            largest = larger
        return arithmetic.div(total, sums[:, :1].expand_as(total))

    return reference
