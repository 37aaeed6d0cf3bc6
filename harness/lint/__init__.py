"""Find mistakes in inline PTX without a GPU: in Python, in C++ and CUDA, or in one snippet.

`snippet` defines a block of inline asm, `block` the input of a rule, `rules` holds the rules, and `engine` runs them. A
rule runs the block in the emulator wherever that can decide the question.
"""
