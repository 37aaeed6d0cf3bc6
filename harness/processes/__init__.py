"""Processes that may die: compile workers, the child that owns a GPU; which GPUs there are, and who holds them."""
