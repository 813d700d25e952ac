"""Pure decisions: facts and numbers in, a verdict out. No clock, no chance, no I/O, nothing kept between calls."""
