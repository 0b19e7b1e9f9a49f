"""Decides what to try next, from the costs measured so far. Knows neither clock nor file."""
