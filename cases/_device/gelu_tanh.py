"""GELU by its tanh formula in Triton: by libdevice's tanh, and by the sigmoid."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def by_tanh(x):
    """PyTorch's approximate="tanh", with CUDA's tanhf."""
    return 0.5 * x * (1.0 + libdevice.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@triton.jit
def by_sigmoid(x):
    """The same formula: 0.5 (1 + tanh u) = sigmoid(2 u)."""
    return x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
