"""Assigns iterations to loops, and finds each loop's role and the facts about its loader.

Imports go one way: ``_settings`` ← ``_session`` ← ``_loops`` ← ``_watch``, ``_caching``, ``torch``.
"""
