"""Copies cached batches, detects changes to them, and replaces SPDL's cache classes by measured ones."""
