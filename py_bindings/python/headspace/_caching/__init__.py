"""Cached batches: how they are kept unchanged, and SPDL's cache classes, measured."""
