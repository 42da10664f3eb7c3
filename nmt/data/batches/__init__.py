"""Batches: sentence pairs packed into flat batches of ids, in an endless, resumable stream."""
