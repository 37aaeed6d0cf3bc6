"""Whole Python files of Triton, run on the CPU as they are: kernels by the emulator, the host's questions answered."""
