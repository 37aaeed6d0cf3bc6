"""e4m3 to float16, four in a register: cvt, shifts with a product, NaN repaired or not, a table, and Triton."""

from functools import partial

import numpy as np
import torch

from ptxdiff import Case, Domain, Meets, asm, exact, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import E4M3, F16, is_nan

from ._device.e4m3_to_f16 import SHIFTS, four, in_triton, repaired

FROM_E4M3 = partial(conversion.convert, source=E4M3, target=F16)


def nan_as_480(x):
    """Without a special case, the code of NaN becomes the number after 448: 480, with its sign."""
    return torch.where(is_nan(E4M3, x), 0x5F80 | (x & 0x80) << 8, FROM_E4M3(x))


FORM = {"constraints": "=&r,=&r,r", "pack": 4}

case = Case(
    inputs={"x": E4M3},
    outputs={"y": F16},
    reference=FROM_E4M3,
    variants={
        "cvt": asm(
            "{ .reg .b16 a, b; mov.b32 {a, b}, $2; cvt.rn.f16x2.e4m3x2 $0, a; cvt.rn.f16x2.e4m3x2 $1, b; }",
            **FORM,
            targets=since("sm_89"),
        ),
        "shifts": asm(
            four(SHIFTS),
            **FORM,
            reference=nan_as_480,
            meets=Meets(Domain("x is a number", lambda v: ~np.isnan(v["x"])), exact()),
            note="NaN becomes 480: for weights that hold none",
        ),
        "shifts-nan": asm(four(SHIFTS + repaired(0) + repaired(1)), **FORM),
        "triton": plain(in_triton, targets=since("sm_89")),
    },
    source="OCP 8-bit Floating Point 1.0, 5.2; PTX ISA, cvt: .e4m3x2",
    family="dequantisation",
)
