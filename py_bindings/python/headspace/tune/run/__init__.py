"""Runs experiments: starts them, follows their records, and ends them."""
