"""Finds loops that the program did not wrap, under `headspace run`, where libraries begin an iteration.

Nothing here is imported by `import headspace`; `_injection/hooks.py` imports a module of this package
when the library that it watches has been imported.
"""
