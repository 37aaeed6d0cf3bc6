"""Triton functions that several case files share. A case's digest covers their code like its own."""
