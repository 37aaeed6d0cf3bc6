"""The right answers, bit for bit, written from the specifications and independent of the emulator."""
