"""A matrix product of int8 by tensor cores: exact, and the same on every generation."""

import torch
import triton.language as tl

from ptxdiff import Case, kernel
from ptxdiff.references import tensor_core
from ptxdiff.references.formats import I8, I32

from ._device.matmul import product
from ._host.products import EIGHT, SIXTEEN, SOURCE, TO, tiles


def integer_product(a, b):
    """Exact sums of products, wrapped to 32 bits."""
    zero = torch.zeros(a.shape[0], b.shape[1], dtype=torch.int64, device=a.device)
    return tensor_core.dot_integer(a, b, zero, a_format=I8, b_format=I8, to=I32)


case = Case(
    inputs={"a": I8["M", "K"], "b": I8["K", "N"]},
    outputs={"d": I32["M", "N"]},
    reference=integer_product,
    sizes=[{"M": 17, "N": 40, "K": 80}],
    variants={"tiles-of-32": kernel(product, grid=tiles, meta=TO | {"TO": tl.int32})},
    targets=EIGHT | SIXTEEN,
    family="matrix products",
    source=SOURCE,
)
