"""Decides from the costs measured so far what to try next. Uses no clock and no files."""
