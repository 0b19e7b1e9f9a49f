"""The session: it begins, records go to its destinations, and it ends with a report."""
