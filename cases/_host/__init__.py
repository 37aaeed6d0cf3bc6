"""What cases run on the host and have no room for: inputs, expected results, policies, faults, fields of formats."""
