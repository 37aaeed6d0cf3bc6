"""Compare the records of two runs, without where and when each item ran."""

from dataclasses import fields, replace

from ptxdiff.records import read

ELSEWHERE = ("node", "seconds", "made")
"""The facts that may differ between a run here and one on a cluster."""


def differences(one, other):
    """The fields in which two records files differ, in words."""
    a, b = read(one), read(other)
    found = [f"{name} differ" for name in ("cases", "texts", "disagreements") if getattr(a, name) != getattr(b, name)]
    keys = [[r.key for r in run.results] for run in (a, b)]
    if len(set(keys[0])) != len(keys[0]) or sorted(keys[0]) != sorted(keys[1]):
        found.append(f"{len(keys[0])} results, and {len(keys[1])}; or a key twice")
    there = {r.key: r for r in b.results}
    for r in a.results:
        if r.key in there:
            found += [f"{r.key}: {words}" for words in _fields(r, there[r.key])]
    if (a.end is None) != (b.end is None) or (a.end and b.end and a.end.verdicts != b.end.verdicts):
        found.append(f"ends {a.end} and {b.end}")
    return found


def _fields(one, other):
    same = {f.name: getattr(one, f.name) for f in fields(one) if f.name in ELSEWHERE}
    other = replace(other, **same)
    return [
        f"{f.name}: {getattr(one, f.name)!r} and {getattr(other, f.name)!r}"[:600]
        for f in fields(one)
        if getattr(one, f.name) != getattr(other, f.name)
    ]
