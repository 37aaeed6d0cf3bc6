"""Random programs in PTX: assembled by every ptxas at every level, run on a GPU, judged against the emulator."""
