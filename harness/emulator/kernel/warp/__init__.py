"""Exchanges and products of matrices within a warp."""
