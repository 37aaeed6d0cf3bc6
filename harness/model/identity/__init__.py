"""Identities: one value that covers everything that decides bits, and one that covers everything that decides the
verdict.

Every memo, cache, resumed run, gate and device job compares these and uses no other key. `encoding` turns plain values
into bytes; `code` does so for functions, with their texts from `source`. `definition` is the identity of a variant with
its policies, for the verdict, and `dependencies` what decides a run's results besides.
"""

from ptxdiff.model.identity.code import digest_with_code
from ptxdiff.model.identity.encoding import digest, encode
from ptxdiff.model.identity.source import executed

__all__ = ["digest", "digest_with_code", "encode", "executed"]
