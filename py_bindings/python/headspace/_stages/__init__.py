"""Implements :func:`headspace.stage` and :func:`headspace.queue`: stages and queues named by the user."""
