"""Reference functions: correct results bit for bit, written from the specifications, independent of the emulator."""

import os

__path__[:] = map(os.path.realpath, __path__)  # in a checkout a link leads here; modules have their real files
