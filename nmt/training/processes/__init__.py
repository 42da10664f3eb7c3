"""The processes of a run: its ranks, their launcher, stop signals and the watchdog."""
