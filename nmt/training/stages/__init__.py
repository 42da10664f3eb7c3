"""The stages of a run before its training, in which models write training text."""
