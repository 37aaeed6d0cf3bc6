"""The declarations of case files: cases, variants, policies, targets, and their identities."""

from ptxdiff.ours import first

first("references")  # before any module of this package, or a case file, imports them
