"""Measured promises: ratios within one run, counts and exponents, never a wall clock alone."""
