"""Batches of sentences: jobs, their decoder, worker processes, and windows of a stream of lines."""
