"""Spread independent pieces of work over the processor's cores.

numba's functions and most of numpy's release the interpreter lock, so threads are enough. Each worker takes the next
piece when it has finished one, because a future for every piece would cost as much as the piece.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def for_each(work: Callable[[int], None], starts: Sequence[int], workers: int | None = None) -> None:
    """Call `work` with each of `starts`, in any order and on several threads.

    After a call fails, no new calls begin. If several fail, the exception of the earliest start is raised.
    """
    count = min(workers or cores(), len(starts))
    if count <= 1:
        for start in starts:
            work(start)
        return
    pieces = iter(starts)
    failures: list[tuple[int, BaseException]] = []
    lock = threading.Lock()

    def drain() -> None:
        while True:
            with lock:
                start = None if failures else next(pieces, None)
            if start is None:
                return
            try:
                work(start)
            except BaseException as failure:
                with lock:
                    failures.append((start, failure))

    threads = [threading.Thread(target=drain, daemon=True) for _ in range(count - 1)]
    for thread in threads:
        thread.start()
    drain()
    for thread in threads:
        thread.join()
    if failures:
        raise min(failures, key=lambda f: f[0])[1]
