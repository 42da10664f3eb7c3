"""Strings that a translation copies: placeholders in training text, in the search and in translations."""
