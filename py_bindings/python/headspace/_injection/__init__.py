"""How headspace gets into a program that does not import it, and stays out of what is not Python.

The files here are loaded by their path, before anything else of headspace, and import nothing of it.
"""
