"""Hashes of indices, for dropout and random rounding: MurmurHash3's last step, and splitmix64; asm and Triton."""

import triton

from ptxdiff import Case, asm, plain
from ptxdiff.references import hashes
from ptxdiff.references.formats import U32, U64


@triton.jit
def murmur_in_triton(x):
    """Products wrap."""
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13)) * 0xC2B2AE35
    return x ^ (x >> 16)


@triton.jit
def splitmix_in_triton(x):
    """The same in 64 bits, on the next state."""
    x = x + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


def mixed(bits, shifts, factors, start):
    """Exclusive or with a shifted copy, and a product, in turn."""
    steps = [start]
    for place, shift in enumerate(shifts):
        steps += [f"shr.u{bits} t, $0, {shift}; xor.b{bits} $0, $0, t;"]
        steps += [f"mul.lo.u{bits} $0, $0, {f:#x};" for f in factors[place : place + 1]]
    return f"{{ .reg .b{bits} t; {' '.join(steps)} }}"


def hash_of(fmt, reference, source, variants):
    """The case of one hash."""
    parts = {"inputs": {"x": fmt}, "outputs": {"y": fmt}, "carry": {"y": "x"}, "family": "bits and integers"}
    return Case(reference=reference, source=source, variants=variants, **parts)


MURMUR = mixed(32, (16, 13, 16), (0x85EBCA6B, 0xC2B2AE35), "mov.b32 $0, $1;")
SPLITMIX = mixed(64, (30, 27, 31), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB), "add.u64 $0, $1, 0x9E3779B97F4A7C15;")

murmur = hash_of(U32, hashes.fmix32, "A. Appleby, MurmurHash3: fmix32", {
    "asm": asm(MURMUR),
    "triton": plain(murmur_in_triton),
})  # fmt: skip
splitmix = hash_of(U64, hashes.splitmix64, "Steele, Lea, Flood, 2014: splitmix64", {
    "asm": asm(SPLITMIX),
    "triton": plain(splitmix_in_triton),
})  # fmt: skip
