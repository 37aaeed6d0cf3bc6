"""Device code of cases that several share, or that is too long for a case file: Triton functions, and long asm.

`narrow` and `blocks` serve several families; every other module has the name of its case file. A case's definition
covers this code like its own.
"""
