"""Mistakes in inline PTX, found without a GPU: in Python, in C++ and CUDA, or in one snippet.

`snippet` says what a block of inline asm is, `block` what a rule is given, `rules` which rules there are, `engine` runs
them. Everything that the emulator can decide is decided by running the block.
"""
