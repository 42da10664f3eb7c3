"""Training: the processes of a run, the optimizer update, the loop, its figures and its files."""
