"""Manages the session: its start, the destinations of its records, and its final report."""
