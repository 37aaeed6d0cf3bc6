"""Asynchronous products of a warpgroup (wgmma)."""
