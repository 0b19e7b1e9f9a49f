"""Defines what is varied: knobs, constraints between them, and the command that takes their values."""
