"""Compiling Triton kernels for any target without a GPU, in processes that may die.

Importing this package loads neither triton nor torch. `spec` says what is compiled, `compile` compiles it, `kept` keeps
the PTX, `assemble` calls ptxas, `targets` says which targets the installed Triton serves, `templates` holds the kernels
that the harness itself launches.
"""
