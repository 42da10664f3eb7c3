"""What training measures and shows: speed, memory, progress bar, metrics and profiles."""
