"""Host code that is too long for case files: inputs, expected results, policies, faults, fields of formats."""
