"""Raw sentence pairs: files, tables, hub data sets and test sets, and the mixture of several corpora."""
