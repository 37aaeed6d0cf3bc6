"""Arithmetic on bit patterns, and its compilation for arrays."""
