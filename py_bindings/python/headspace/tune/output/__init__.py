"""Shows a search: progress, the report, files of results, and plots."""
