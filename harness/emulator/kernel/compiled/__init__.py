"""Whole kernels as machine code, where threads are independent of each other.

A thread that has no barrier, no shared memory, no atomic operation and no loop computes from what it loads, and stores.
`analysis` decides from the program whether a kernel is such a one, `code` makes one function of all its steps, and
`launch` runs it on a grid. The function does its own checks of addresses, and marks what it stores and loads. A launch
counts only if nothing can be wrong with it: all accesses are inside their buffers and aligned, no two threads touch one
byte of which one of them stores, and no stored bit is undefined. In any other case the machine of `KernelFrame` runs
the kernel again, from the same memory, and says what it finds.
"""
