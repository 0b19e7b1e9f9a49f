"""Injects headspace into Python programs under `headspace run`, and keeps it out of other programs.

These files are loaded by path, before any other module of headspace, and import none of them.
"""
