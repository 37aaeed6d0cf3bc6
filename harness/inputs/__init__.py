"""Input sets: which bit patterns a case is run on. Each is named and versioned, and made from the case alone.

`edges` (products of each format's edge codes), `specials` (zeros, infinities, NaN and the like in combinations that a
sample of the edges leaves out), `ties` (every midpoint of neighbouring outputs, for conversions to a narrower format,
and the input format's values one step either side), `outputs` (every binade of the reference's results and both sides
of every threshold), `rounding` (operands whose product, sum or quotient ties, cancels or lies beside an end of the
range), `patterns` (integers of few bits, every edge code in every slot of a packed format, three floats in one binade),
`hard` (what the case lists), `random` (bit patterns stratified by class) and `exhaustive` (all of them). Seeds come
from the case and the set, never from the order of running: the same set of the same case is the same everywhere.
"""

from harness.inputs.sets import InputSet, input_sets, named_set, stratified

__all__ = ["InputSet", "input_sets", "named_set", "stratified"]
