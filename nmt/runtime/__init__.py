"""The services that every stage uses: devices, atomic file writes, seeds, progress bars and the log."""
