"""Loops: which iteration is an epoch of which loop, what the loop is for, and what its loader says.

Imports go one way: ``_settings`` ← ``_session`` ← ``_loops`` ← ``_watch``, ``_caching``, ``torch``.
"""
