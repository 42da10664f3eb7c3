"""The numbers, tables and pictures of docs/transformer.md, for `transformer_steps.py`."""
