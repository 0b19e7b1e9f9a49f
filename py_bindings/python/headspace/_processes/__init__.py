"""Handles other processes: detects loader workers, and ends programs with all their children."""
