"""Compiles Triton kernels for any target without a GPU, in processes whose crash does no harm.

Importing this package loads neither triton nor torch. `spec` describes a compilation, `compile` compiles and stores PTX
between runs, `assemble` calls ptxas, `targets` lists the targets of the installed Triton, and `templates` has the
kernels that the harness itself launches.
"""
