"""int4 to float16, a word of eight to four pairs: magic numbers by lop3, cvt one at a time, and Triton."""

from functools import partial

from ptxdiff import Case, asm, plain
from ptxdiff.references import dequantise
from ptxdiff.references.formats import F16X2, U32

from ._device.int4_to_f16 import MAGIC, converted, in_triton


def pairs(q, *, signed, zero):
    """Four outputs: the elements k and k + 4 of each word."""
    return dequantise.interleaved(dequantise.integers(q, bits=4, width=32, signed=signed, zero=zero), groups=4)


def words_of_eight(signed, zero, variants):
    """The case of one reading of the nibbles."""
    return Case(
        inputs={"q": U32},
        outputs=dict.fromkeys("abcd", F16X2),
        reference=partial(pairs, signed=signed, zero=zero),
        variants={**variants, "triton": plain(in_triton, constants={"SIGNED": signed})},
        source="Kim et al., Who says elephants can't run, 2022; PTX ISA, lop3",
        family="dequantisation",
    )


less8 = words_of_eight(False, 8, {
    "lop3": asm(MAGIC.format("0xEA", "0x64006400", "0x64006400")),
    "bfe-cvt": asm(converted("bfe.u32 t, $4, {at}, 4; sub.s32 t, t, 8;")),
})  # fmt: skip
signed = words_of_eight(True, 0, {
    "lop3-xor": asm(MAGIC.format("0x6A", "0x64086408", "0x64806480")),
    "bfe-cvt": asm(converted("bfe.s32 t, $4, {at}, 4;")),
})  # fmt: skip
