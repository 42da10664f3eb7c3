"""Evaluation: computes scores, significance tests and a report from hypotheses and references."""
