"""Batches in, weights out: the objective, its optimizer, the loop, and everything a run leaves on disk."""
