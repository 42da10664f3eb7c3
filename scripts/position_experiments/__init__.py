"""The experiments of `scripts/position_study.py`: data, trainings, measurements, tables and plots."""
