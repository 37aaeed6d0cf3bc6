"""nf4, two in a byte, to float16: a table in registers read by prmt, a tree of selections, and Triton."""

from ptxdiff import Case, asm, plain
from ptxdiff.references import dequantise
from ptxdiff.references.formats import F16X2, U8

from ._device.nf4_to_f16 import in_triton, prmt, selected

CODES = dequantise.table()


case = Case(
    inputs={"q": U8},
    outputs={"y": F16X2},
    reference=dequantise.nf4,
    variants={
        "prmt": asm(prmt(CODES), constraints="=&r,=&r,=&r,=&r,r", pack=4),
        "selp": asm(selected(CODES), constraints="=r,r", pack=1),
        "triton": plain(in_triton, constants={"TABLE": tuple(CODES)}),
    },
    source="Dettmers et al., QLoRA, 2023, appendix E; PTX ISA, prmt",
    family="dequantisation",
)
