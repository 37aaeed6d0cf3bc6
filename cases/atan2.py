"""The angle of a point: a polynomial on [0, 1] and reflections, and libdevice's atan2."""

import torch

from ptxdiff import Case, absolute, plain, ulp
from ptxdiff.references import faithful
from ptxdiff.references.formats import F32

from ._device.atan2 import in_libdevice, polynomial

case = Case(
    inputs={"y": F32, "x": F32},
    outputs={"angle": F32},
    reference=faithful.atan2,
    pytorch=torch.atan2,
    variants={
        "polynomial": plain(
            polynomial,
            match=absolute(
                2.0**-21, source="Abramowitz, Stegun 4.4.49: 2e-8; the quotient, the steps and pi - angle add 2^-21.4"
            ),
        ),
        "libdevice": plain(
            in_libdevice,
            match=ulp(
                4,
                underflow=True,
                source="CUDA C++ Programming Guide, mathematical functions: atan2f 3 ulp; the reference half",
            ),
            ftz="allowed",
        ),
    },
    family="fast math",
    source="Abramowitz, Stegun, Handbook of Mathematical Functions, 4.4.49; IEEE 754 9.2.1",
)
