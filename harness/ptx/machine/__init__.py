"""The lockstep machine: programs run on arrays, one lane for each element, pack or thread."""
