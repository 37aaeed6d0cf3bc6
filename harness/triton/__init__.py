"""Compiling Triton kernels for any target without a GPU, in processes that may die.

Importing this package loads neither triton nor torch. `compile` describes and compiles kernels, `targets` says which
targets the installed Triton serves, `templates` holds the kernels that the harness itself launches.
"""
