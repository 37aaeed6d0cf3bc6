"""Machine code on the CPU: what ptxas made of PTX, executed bit for bit, and compared with the PTX.

Instructions come from nvdisasm's text and from their encoding (`text`). Each has a row in a table (`isa`), whose
definition uses the arithmetic of `ptxdiff.emulator`. `machine` runs them with program counters, convergence barriers
and uniform registers of their own. What no row describes is refused by name (`Unsupported`), never guessed.
"""
