"""Records files that a test changes, with corrected checksums: they must be refused for their contents."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ptxdiff.records import Seal

SUM = re.compile(rb',"sum":"[0-9a-f]{16}"}$')


def unsealed(data: bytes) -> list[bytes]:
    """The lines of a records file without their checksums."""
    return [SUM.sub(b"}", line) for line in data.splitlines()]


def sealed(lines: Iterable[bytes], *, chained: bool = True) -> bytes:
    """A records file of these lines."""
    seal = Seal(chained=chained)
    return b"".join(seal.close(line) for line in lines)
