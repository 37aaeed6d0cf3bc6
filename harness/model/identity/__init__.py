"""Identities: one value for everything that decides bits, and one for everything that decides the verdict.

Every memo, cache, resumed run, gate and device job compares these and has no key of its own. `encoding` turns plain
values into bytes; `code` does so for functions, with their texts from `source`. `experiment` is the identity of a run,
which decides bits. `definition` is that of a variant with its policies, which decides the verdict.
"""

from harness.model.identity.code import digest_with_code
from harness.model.identity.encoding import digest, encode
from harness.model.identity.source import executed

__all__ = ["digest", "digest_with_code", "encode", "executed"]
