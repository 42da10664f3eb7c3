"""Figures of training: speed, memory, progress bar, metrics and profiles."""
