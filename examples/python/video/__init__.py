"""Code that the example programs share: clips, a threaded loader, and small models."""
