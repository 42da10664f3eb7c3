"""Lexical constraints: phrases that a translation must contain, and terminology files."""
