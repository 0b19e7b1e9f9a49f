"""Processes beside this one: loader workers, and programs that are ended with all their children."""
