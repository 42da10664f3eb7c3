"""Cleaning of training pairs: rules that drop pairs, duplicate detection, and shards of cleaned text."""
