"""Kernels for comparisons, and the case with their inputs."""

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"

CASE = '''
"""Positive numbers 4.1 times, negative ones by minus a half."""
import numpy as np
from ptxdiff import Case, ptx, numpy_reference
from ptxdiff.references.formats import F32

@numpy_reference
def reference(x):
    given = x.astype(np.uint32).view(np.float32)[:64]
    with np.errstate(all="ignore"):
        more = (given * np.float32(3.1)).astype(np.float32)
        made = np.where(given < 0, given * np.float32(-0.5), more + given).astype(np.float32)
    return made.view(np.uint32).astype(np.int64)

def generate(sizes, rng):
    x = rng.normal(size=sizes["N"]).astype(np.float32)
    x[5], x[9] = 0.0, 0.1
    return {"x": x.view(np.uint32)}

case = Case(
    inputs={"x": F32["N"]}, outputs={"y": F32["M"]}, reference=reference, generate=generate,
    sizes=[{"N": 65, "M": 64}],
    variants={"own": ptx("base.ptx", grid=1, block=64, parameters=["x", "y"], fusion=FUSION)},
)
'''

BODY = """mov.u32 %r1, %tid.x;
mul.wide.u32 %d3, %r1, 4;
ld.param.u64 %d1, [px];
add.u64 %d4, %d1, %d3;
ld.global.f32 %f1, [%d4];
setp.lt.f32 %p1, %f1, 0f00000000;
@%p1 bra NEG;
mul.rn.f32 %f2, %f1, 0f40466666;
add.rn.f32 %f3, %f2, %f1;
bra END;
NEG:
mul.rn.f32 %f3, %f1, 0fBF000000;
END:
ld.param.u64 %d2, [py];
add.u64 %d5, %d2, %d3;
st.global.f32 [%d5], %f3;
ret;"""


def kernel(body=BODY, name="k", header=HEADER, extra=""):
    """A module with one kernel of two pointers."""
    return f"""{header}{extra}.visible .entry {name}(.param .u64 px, .param .u64 py)
{{
.reg .b64 %d<16>; .reg .b32 %r<16>; .reg .f32 %f<16>; .reg .pred %p<8>;
{body}
}}
"""


def changed(old, new, body=BODY):
    """The kernel with one part of its text replaced."""
    assert old in body
    return kernel(body.replace(old, new))
