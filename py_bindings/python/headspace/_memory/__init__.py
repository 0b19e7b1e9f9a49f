"""Finds what makes the memory of this process grow. No code of the program is called, and no reference is kept."""
