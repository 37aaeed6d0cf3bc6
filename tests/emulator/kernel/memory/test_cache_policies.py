"""Cache policies (createpolicy) change no value: a load with a policy gives what memory holds."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.kernel.run import Buffer, run_kernel

X = np.arange(32, dtype=np.int32)
RANGE = "createpolicy.range.L2::evict_last.b64 %p, [%x]"


def run(policy: str) -> np.ndarray:
    text = f""".version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
{{
  .reg .b64 %x, %y, %p, %q, %at; .reg .b32 %t, %v;
  ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 4;
  {policy}
  add.u64 %x, %x, %at; add.u64 %y, %y, %at;
  ld.global.L2::cache_hint.b32 %v, [%x], %p; st.global.b32 [%y], %v;
  ret;
}}
"""
    y = np.zeros_like(X)
    run_kernel(text, [Buffer(X, "x"), Buffer(y, "y")], (1,), num_threads=32)
    return y


@pytest.mark.parametrize(
    "policy",
    [
        "createpolicy.fractional.L2::evict_last.b64 %p, 0.5;",
        "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %p, [%x], 256, %t;",
        "createpolicy.range.L2::evict_unchanged.b64 %p, [%x+16], 0x100000, 0x200000;",
        "mov.b64 %q, 0; createpolicy.cvt.L2.b64 %p, %q;",
        "mov.b64 %p, 0; prefetch.tensormap [%x];",
    ],
)
def test_each_kind_runs(policy: str) -> None:
    """ptxas (13.5) accepts all of them."""
    np.testing.assert_array_equal(run(policy), X)


@pytest.mark.parametrize("policy", [f"{RANGE}, 256;", f"{RANGE}, 256, %q;", "createpolicy.cvt.L2.b64 %p;"])
def test_a_missing_or_wrong_operand_is_refused(policy: str) -> None:
    with pytest.raises(PtxError, match="createpolicy"):
        run(policy)
