"""Run whole kernels: modules, grids, memory, calls, warps."""
