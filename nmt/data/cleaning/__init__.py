"""Cleaning: the rules that drop training pairs, duplicates, and the cleaned text in shards."""
