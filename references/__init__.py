"""Reference functions: correct results bit for bit, written from the specifications, independent of the emulator."""
