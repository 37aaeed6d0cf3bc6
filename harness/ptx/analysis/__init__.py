"""What can be said of asm without its inputs' values."""
