"""Which test points to keep: relaxation, rounding, certificate. Knows no torch."""
