"""Texts and files with their formats: the lines to translate, and the same file with translations."""
