"""Preparation of corpora: encoded shards, and the data report."""
