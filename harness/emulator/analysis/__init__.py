"""Static analysis of asm blocks: what follows from the text alone, without the values of inputs."""
