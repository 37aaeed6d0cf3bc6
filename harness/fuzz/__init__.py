"""Fuzzing of ptxas: random PTX programs, assembled by each ptxas at each level, run on a GPU and compared with the
emulator.
"""
