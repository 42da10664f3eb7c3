"""The server: loads the models, listens, answers, and stops in order."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from nmt.config import ServeConfig
from nmt.errors import UserError
from nmt.runtime.files import expanded, read_text
from nmt.runtime.os_errors import read_errors
from nmt.runtime.signals import STOP_SIGNALS, unignored
from nmt.runtime.streams import log
from nmt.serving.app import App
from nmt.serving.connections import Connections
from nmt.serving.metrics import Metrics
from nmt.serving.served_models import load_served_models
from nmt.serving.service import Service

_BACKLOG = 1024
_LONGEST_KEY = 10_000  # characters


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
    models = load_served_models(config)
    metrics = Metrics(lambda: service.waiting, lambda: len(connections.open))
    service = Service(models, config.limits, wait=config.batch_wait_ms / 1000, observe=metrics.batch)
    handled = unignored(STOP_SIGNALS)

    @asynccontextmanager
    async def stopping(asgi: object) -> AsyncIterator[None]:
        """Handles the signals in the event loop, in place of the handlers of uvicorn."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            if number in handled:
                loop.add_signal_handler(number, stop, number)
            else:
                signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        log.info("Listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def stop(number: signal.Signals) -> None:
        if server.should_exit:
            log.info("Stopped (%s).", number.name)
            # Worker processes end with this process. At a normal exit Python would wait for their searches.
            os._exit(128 + number)
        log.info("Stopping (%s): answering the requests that have arrived.", number.name)
        app.draining = server.should_exit = True

    try:
        app = App(service, config, key, metrics, stopping)
        connections = Connections(app.asgi, config.limits)
        listening = _listening_socket(config)
        server = _uvicorn(config, connections)
        host, port = listening.getsockname()[:2]
        # A signal that arrives before the handlers of the event loop are set waits for them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        try:
            asyncio.run(server.serve([listening]))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    finally:
        service.close()
    log.info("Stopped.")


def _uvicorn(config: ServeConfig, connections: Connections) -> uvicorn.Server:
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # its warnings are about wrong requests
    return uvicorn.Server(
        uvicorn.Config(
            connections,
            http=connections.protocol,  # type: ignore[arg-type]  # a function in place of a class
            ws="none",
            lifespan="on",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=config.limits.idle_seconds,
            timeout_graceful_shutdown=config.limits.drain_seconds,
        )
    )


def _listening_socket(config: ServeConfig) -> socket.socket:
    """Returns a socket that is bound to the address of the options.

    Raises:
        UserError: the address is unknown or not of this machine, or the port is in use or reserved.
    """
    key = f"port={config.port}"
    try:
        addresses = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):
        raise UserError(f"host={config.host}: is not a known address. Give one such as 127.0.0.1.") from None
    family, kind, protocol, _, address = addresses[0]
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


def read_api_key(config: ServeConfig) -> str | None:
    """Returns the key that requests must have; None: they need none.

    Raises:
        UserError: the file or the environment variable does not hold a key.
    """
    if config.api_key_file is not None:
        path = expanded(config.api_key_file)
        if not path.exists():
            raise UserError(f"api_key_file={config.api_key_file}: there is no such file. Check the name.")
        with read_errors(path):
            key = read_text(path, _LONGEST_KEY).strip()
        if not key:
            raise UserError(f"api_key_file={config.api_key_file}: is empty. Write the key into it.")
        _check_key(f"api_key_file={config.api_key_file}", key)
        return key
    if config.api_key_variable is not None:
        key = os.environ.get(config.api_key_variable, "").strip()
        if not key:
            raise UserError(
                f"api_key_variable={config.api_key_variable}: this environment variable is not set or is "
                "empty. Set it to the key."
            )
        _check_key(f"api_key_variable={config.api_key_variable}", key)
        return key
    return None


def _check_key(name: str, key: str) -> None:
    """Raises `UserError` if no client could send the key."""
    if not key.isprintable():  # a lone surrogate stands for a byte that is not UTF-8
        raise UserError(f"{name}: the key must be one line of visible characters in UTF-8. Give another one.")
