"""Evaluation: hypotheses and references in; scores, significance and a report out."""
