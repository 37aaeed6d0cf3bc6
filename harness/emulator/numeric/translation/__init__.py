"""From scalar definitions to machine code.

`functions` translates a definition to LLVM code, with its expressions in `expressions`, from the syntax tree that
`source` finds; `loops` puts a loop over lanes round it, and `machinecode` compiles that and keeps it.

A definition is a short function over integers and floats (see `ptxdiff.emulator.numeric.bits`), so two types are
enough: a 64-bit integer, which also holds False and True, and a double. Each construct has the meaning that it has in
Python, except that integers wrap at 64 bits. Everything else is refused with `Untranslatable`; nothing is guessed.
"""
