"""What a case file says: cases, variants, policies, targets, and what identifies them."""

from harness.ours import first

first("references")  # before any module of this package, or a case file, imports them
