"""The pure half: values in, verdicts out. No IO, no clock, no randomness, no event loop."""
