"""The lockstep machine runs programs on arrays, with one lane for each element, pack or thread."""
