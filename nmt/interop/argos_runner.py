"""Translates lines with an Argos package by Argos Translate itself, in a process of its own.

Argos Translate reads environment variables and makes folders when it is imported. So it is imported by the
process that executes this file, whose interpreter may lack nmt. The process reads JSON from standard input
and writes JSON to standard output.
"""

import contextlib
import importlib
import json
import sys
from importlib.metadata import version
from typing import Any


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Installs the package and translates the lines, one by one.

    Returns:
        The translations, the sentences that each line was split into, and the name of the splitter. None: it
        could not be loaded, and each line is one sentence.
    """
    package: Any = importlib.import_module("argostranslate.package")
    translate: Any = importlib.import_module("argostranslate.translate")
    package.install_from_path(request["package"])
    translation = translate.get_translation_from_codes(request["from"], request["to"])
    splitter = translation.underlying.sentencizer
    try:
        splitter.split_sentences("One. Two.")
        name = type(splitter).__name__
    except Exception:  # it downloads a model at its first use
        splitter.split_sentences = lambda text: [text]
        name = None
    lines = request["lines"]
    return {
        "version": version("argostranslate"),
        "splitter": name,
        "sentences": [splitter.split_sentences(line) for line in lines],
        "translations": [translation.translate(line) for line in lines],
    }


if __name__ == "__main__":
    import socket

    socket.setdefaulttimeout(5)
    with contextlib.redirect_stdout(sys.stderr):
        answer = run(json.load(sys.stdin))
    json.dump(answer, sys.stdout)
