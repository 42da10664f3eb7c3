r"""Serves translations over HTTP, in LibreTranslate's schema, with a page to try them.

  nmt-serve model_dir=runs/quickstart                     at http://127.0.0.1:5000
  nmt-serve model_dir=DIR host=0.0.0.0 port=8080          for other machines, too
  nmt-serve "model_dir=[DIR,DIR]"                         several pairs of languages
  nmt-serve model_dir=DIR terminology=FILE                required translations of terms

  curl http://127.0.0.1:5000/translate -d "q=A dog runs."
  curl http://127.0.0.1:5000/translate -H "content-type: application/json" \
    -d '{"q": ["A dog runs.", "A cat sleeps."], "alternatives": 2, "scores": true}'

The page is at /, the documentation of the interface at /docs. /languages, /health and /metrics are for other
programs. Requests that arrive at the same time are translated in one batch. The section limits bounds what
clients may ask. Translations are those of nmt-translate with the same options.

SIGTERM and Ctrl-C stop the server in order: it accepts no connections any more, answers the requests that
have arrived, and exits with status 0. A second signal ends it at once, with the status 128 + its number.

It needs the extra packages of nmt[serve].
"""

from __future__ import annotations

from importlib import import_module

from nmt.cli.app import run
from nmt.config import ServeConfig
from nmt.errors import UserError

_PACKAGES = ("starlette", "uvicorn", "httptools", "prometheus_client")


def serve(config: ServeConfig) -> None:
    """Serves as `config` says.

    Raises:
        UserError: a package of the extra `serve` is missing, or the models or the address can't be used.
    """
    for name in _PACKAGES:
        try:
            import_module(name)
        except ImportError:
            raise UserError(f'the package {name} is not installed. Run pip install "nmt[serve]".') from None
    from nmt.serving.server import serve  # needs the packages that were looked for

    serve(config)


def main() -> None:
    """Entry point of `nmt-serve`."""
    run(serve, ServeConfig, "serve", __doc__ or "")


if __name__ == "__main__":
    main()
