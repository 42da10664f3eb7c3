"""The module that the fork server imports: it imports everything that the processes of a run need."""

import signal
from importlib import import_module

# `timeout`, systemd, Slurm and terminals send stop signals to all processes. The fork server must outlive the
# processes that it forks, because it reports their exit statuses; it ends when no client is left. It ignores
# the signals before it imports, which takes a while. SIGTERM is blocked, not ignored: forked processes
# inherit the mask, and a pending SIGTERM must reach them when they unblock it (`launcher._run_rank`).
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
signal.signal(signal.SIGINT, signal.SIG_IGN)
import_module("nmt.runtime.signals").ignore_stop_signals(but=[signal.SIGTERM])

import_module("nmt.training.run")
