"""The processes of a run: ranks, their launcher, their rendezvous, stop signals and the watchdog."""
