"""Memory of running kernels: its spaces, accesses to it, and their order."""
