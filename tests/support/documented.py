"""The example of Triton's documentation of inline asm: outputs 4 to 7 are written before inputs 9 to 12 are read."""

U8_MAX = """
{
    // Unpack `a` into `ai`.
    .reg .b8 tmp<4>;
    mov.b32 {tmp0, tmp1, tmp2, tmp3}, $8;
    cvt.u32.u8 $0, tmp0;
    cvt.u32.u8 $1, tmp1;
    cvt.u32.u8 $2, tmp2;
    cvt.u32.u8 $3, tmp3;
}
cvt.rn.f32.s32 $4, $0;
cvt.rn.f32.s32 $5, $1;
cvt.rn.f32.s32 $6, $2;
cvt.rn.f32.s32 $7, $3;
max.f32 $4, $4, $9;
max.f32 $5, $5, $10;
max.f32 $6, $6, $11;
max.f32 $7, $7, $12;
"""
EIGHT = ",".join(["=r"] * 8)
FIVE = ",".join(["r"] * 5)
CONSTRAINTS = f"{EIGHT},{FIVE}"
