"""What the fork server imports: everything that the processes of a run need."""

import signal
from importlib import import_module

# `timeout`, systemd, Slurm and terminals send stop signals to all. The fork server must outlive those
# it has forked, since it is who tells how they ended; it ends when nobody is left that could ask for more.
# So it is deaf to them before it imports, which takes a while. SIGTERM is put off, not ignored: what it forks
# inherits that, and must hear of it as soon as it can (`launcher.run_rank`).
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
signal.signal(signal.SIGINT, signal.SIG_IGN)
import_module("nmt.runtime.signals").ignore_stop_signals(but=[signal.SIGTERM])

import_module("nmt.training.run")
