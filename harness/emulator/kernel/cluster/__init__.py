"""Blocks of a cluster, and the control of their launch."""
