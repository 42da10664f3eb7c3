"""The state of a process that a call from Python must not change."""

from __future__ import annotations

import copy
import logging
import os
import random
import signal
import sys
from multiprocessing import spawn
from typing import Any

import numpy as np
import torch
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.version import VersionBase
from omegaconf.basecontainer import BaseContainer

from nmt.runtime.signals import STOP_SIGNALS


def state() -> dict[str, Any]:
    """Returns the process state that a call must not change."""
    log = logging.getLogger("nmt")
    return {
        "environment": {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"},
        "folder": os.getcwd(),
        "signals": [signal.getsignal(one) for one in STOP_SIGNALS],
        "log": (log.level, log.propagate, log.disabled, [*log.handlers], [*log.filters]),
        "root log": logging.root.level,
        "agent's logs": [
            logging.getLogger(f"torch.{name}").level for name in ("distributed.elastic", "multiprocessing")
        ],
        "path": [*sys.path],
        "python's numbers": random.getstate(),
        "numpy's numbers": str(np.random.get_state()),
        "torch's numbers": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "type": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "products": torch.backends.mkldnn.matmul.fp32_precision,  # type: ignore[attr-defined]
        "gradients": torch.is_grad_enabled(),
        "hydra": (GlobalHydra.instance().hydra, VersionBase.instance().version_base),
        "store": copy.deepcopy(ConfigStore.instance().repo).keys(),
        "resolvers": dict(BaseContainer._resolvers),
        "spawning": spawn.get_preparation_data,
        "main": sys.modules["__main__"],
    }
