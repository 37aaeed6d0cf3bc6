"""PTX text: tokens, constants, the syntax tree, and LLVM's spelling of inline asm."""
