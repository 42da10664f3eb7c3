"""Raw sentence pairs from text files, tables, hub data sets and test sets, and mixtures of corpora."""
