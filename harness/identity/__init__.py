"""Identities: what decides the bits of an experiment, and what decides the verdict on them, as values.

Every memo, cache, resumed run, gate and device job compares these and has no key of its own. `encoding` turns values
into bytes, `code` functions; `experiment` is what decides bits, `definition` what decides the verdict.
"""

from harness.identity.code import digest_with_code
from harness.identity.encoding import digest, encode
from harness.identity.source import executed

__all__ = ["digest", "digest_with_code", "encode", "executed"]
