"""Reports: finished evaluations and runs as self-contained HTML pages."""
