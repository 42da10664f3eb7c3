"""The state of a run on disk: run folder, checkpoints, warm start, rewind and averaging."""
