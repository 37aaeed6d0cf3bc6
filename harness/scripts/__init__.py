"""Runs whole Python files of Triton on the CPU, unchanged: the emulator runs kernels, stand-ins replace the GPU."""
