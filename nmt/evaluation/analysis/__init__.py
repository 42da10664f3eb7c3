"""The analysis of an evaluation: where the scores come from, and what is wrong with the translations."""
