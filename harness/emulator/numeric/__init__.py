"""Arithmetic on bit patterns, and compilation of definitions for arrays."""
