"""Asynchronous copies (cp.async, bulk copies of bytes and of tensors) and the mbarriers that they report to."""
