"""Whole kernels: modules, grids, memory, calls, warps."""
