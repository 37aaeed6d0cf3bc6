"""Syntax trees of @triton.jit functions, parsed once in a worker. Imports triton.

Triton parses the source of each function of a kernel whenever it compiles one. That took a sixth of the time from a
function to Triton's own dialect. Triton's code generator only reads a tree, apart from a mark on expression statements,
which depends on the tree alone. No version promises that, so a test compares the trees after compilations.
"""

from __future__ import annotations

import contextlib
import functools
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from triton.runtime.jit import JITFunction

KEPT = 1000

_trees: OrderedDict[tuple[str, Any], Any] = OrderedDict()


@contextlib.contextmanager
def parsed_once() -> Iterator[None]:
    """Within this block, functions with equal source share a tree. Not thread-safe: it changes a class of Triton."""
    parse = JITFunction.parse
    own = "parse" in vars(JITFunction)

    @functools.wraps(parse)
    def kept(function: Any) -> Any:
        text = getattr(function, "_src", None)  # what Triton parses; `_unsafe_update_src` replaces it
        if not isinstance(text, str):
            return parse(function)
        key = text, parse
        if key not in _trees:
            _trees[key] = parse(function)
            while len(_trees) > KEPT:
                _trees.popitem(last=False)
        return _trees[key]

    JITFunction.parse = kept
    try:
        yield
    finally:
        if own:
            JITFunction.parse = parse
        else:
            del JITFunction.parse
