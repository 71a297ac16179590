"""What this package answers, held against ModelScope's own code."""
