"""The declarations of case files: cases, variants, policies, targets, and their identities."""
