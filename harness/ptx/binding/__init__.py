"""From a syntax tree to a program: names, constraints, operands and forms, checked as ptxas checks them."""
