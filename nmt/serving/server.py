"""The server: loads the models, listens, answers, and stops in order."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from nmt.config import ServeConfig
from nmt.errors import UserError
from nmt.runtime import STOP_SIGNALS, log, unignored
from nmt.serving.access import read_api_key
from nmt.serving.app import App
from nmt.serving.backend import load_backends
from nmt.serving.connections import limited
from nmt.serving.metrics import Metrics
from nmt.serving.service import Service

_BACKLOG = 1024


def serve(config: ServeConfig) -> None:
    """Serves until a signal stops the server.

    SIGTERM and SIGINT (Ctrl-C) stop it in order: it accepts no connections any more, answers the requests
    that it has, and returns. A second signal ends the process at once, with the status 128 + its number.

    Raises:
        UserError: the models, the key or the address can't be used.
    """
    key = read_api_key(config)
    if config.port:
        _listening_socket(config).close()  # reports a used port before the models are loaded
    backends = load_backends(config)
    connections: set[object] = set()
    metrics = Metrics(lambda: service.waiting, lambda: len(connections))
    service = Service(backends, config.limits, wait=config.batch_wait_ms / 1000, observe=metrics.batch)
    try:
        app = App(service, config, key, metrics)
        listening = _listening_socket(config)
        server = _Server(config, app)
        connections = server.server_state.connections  # type: ignore[assignment]
        host, port = listening.getsockname()[:2]
        log.info("Listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
        asyncio.run(server.serve([listening]))
    finally:
        service.close()
    log.info("Stopped.")


class _Server(uvicorn.Server):
    """uvicorn with the signals of nmt."""

    def __init__(self, config: ServeConfig, app: App) -> None:
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # its warnings are about wrong requests
        limits = config.limits
        super().__init__(
            uvicorn.Config(
                app.asgi,
                http=limited(limits),
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_keep_alive=limits.idle_seconds,
                timeout_graceful_shutdown=limits.drain_seconds,
            )
        )
        self._app = app

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles the signals during the body, in the event loop."""
        loop = asyncio.get_running_loop()
        handled = unignored(STOP_SIGNALS)
        for one in handled:
            loop.add_signal_handler(one, self._stop, one)
        try:
            yield
        finally:
            for one in handled:
                loop.remove_signal_handler(one)

    def _stop(self, signum: signal.Signals) -> None:
        if self.should_exit:
            log.info("Stopped (%s).", signum.name)
            # Worker processes end with this process. At a normal exit Python would wait for their searches.
            os._exit(128 + signum)
        log.info("Stopping (%s): answering the requests that have arrived.", signum.name)
        self._app.draining = self.should_exit = True


def _listening_socket(config: ServeConfig) -> socket.socket:
    """Returns a socket that is bound to the address of the options.

    Raises:
        UserError: the address is unknown or not of this machine, or the port is in use or reserved.
    """
    key = f"port={config.port}"
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise UserError(f"host={config.host}: is not a known address. Give one such as 127.0.0.1.") from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except PermissionError:
        listening.close()
        raise UserError(f"{key}: this port is reserved. Give one above 1023, or port=0.") from None
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"{key}: this port is in use. Give another one, or port=0 for a free one."
            ) from None
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"host={config.host}: can't listen there: {reason}. Give another address.") from None
    return listening
