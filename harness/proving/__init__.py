"""Prove that a variant gives an accepted result for all inputs, with a solver for bit-vectors and floats.

`programs` runs a bound asm block on terms instead of numbers, by `definitions`, which interprets the source of the
instruction set; `graphs` does the same for the judge's rules and the reference, which torch traces. `queries` writes
the question "is there an input whose result is refused?", `solving` asks a solver, and `verdicts` decides what the
answer says. Whatever has no term raises `NotModelled`, and the verdict is "not settled" with that reason.
"""
