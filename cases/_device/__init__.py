"""What cases run on a device and share, or have no room for: Triton functions, and long asm.

`narrow` and `blocks` serve several families; every other module has the name of the case file that it belongs to. A
case's definition covers their code as its own.
"""
