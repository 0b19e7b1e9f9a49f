"""Measures which video format and decoder load clips fastest on this machine, for your own videos."""
