"""Kernels as machine code."""
