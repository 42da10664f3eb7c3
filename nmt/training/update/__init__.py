"""One update: loss, optimizer, schedule, precision, and how ranks share the work."""
