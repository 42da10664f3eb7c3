"""The parts of `goldens.py`: what it runs, records and compares."""
