"""Turn a syntax tree into a program: names, constraints, operands and forms, checked as ptxas checks them."""
