"""Preparation: from corpora to encoded shards, and the report about the data."""
