"""From a caller's bytes to the tensors of the first stage: pure functions, arrays in, arrays out, no torch."""
