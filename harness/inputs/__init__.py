"""Input sets: the bit patterns on which a case runs. Each set has a name and version, and depends only on the case.

`edges` (products of each format's edge codes), `specials` (zeros, infinities, NaN and the like in combinations that a
sample of the edges leaves out), `ties` (every midpoint of neighbouring outputs, for conversions to a narrower format,
and the input format's neighbouring values), `outputs` (every binade of the reference's results and both sides of every
threshold), `rounding` (operands whose product, sum or quotient ties, cancels or lies near an end of the range),
`intermediate` (both sides of the boundaries of roundings inside the reference, solved backwards to inputs),
`patterns` (integers of few bits, every edge code in every slot of a packed format, three floats in one binade), `hard`
(the inputs that the case lists), `random` (bit patterns stratified by class) and `exhaustive` (all of them). `words-4`,
`constants-4` and `all-words-4` have tuples of inputs that one invocation at pack 4 reads. Seeds depend on the case and
the set, not on the order of running, so the same set of the same case is equal everywhere.
"""

from ptxdiff.inputs.sets import InputSet, constant_sets, input_sets, named_set, stratified, word_sets

__all__ = ["InputSet", "constant_sets", "input_sets", "named_set", "stratified", "word_sets"]
