"""Stages and queues that the user names: :func:`headspace.stage` and :func:`headspace.queue`."""
