"""Processes that may die (compile workers, the child that owns a GPU), the host's GPUs, and locks on them."""
