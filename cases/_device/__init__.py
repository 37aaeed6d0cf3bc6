"""Triton functions that several case files share; a case's definition covers their code as its own."""
