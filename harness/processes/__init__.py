"""Processes whose crash does no harm (compile workers, the child that owns a GPU), the host's GPUs, and their locks."""
