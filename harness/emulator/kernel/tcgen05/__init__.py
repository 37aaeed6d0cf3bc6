"""The fifth generation of tensor cores (tcgen05): tensor memory, copies, and products."""
