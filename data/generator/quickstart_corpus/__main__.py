"""Writes or checks the bundled quickstart corpus: generated English-German sentence pairs.

Usage, in data/generator: python -m quickstart_corpus [--output ../quickstart] [--check]
"""

import argparse
import gzip
import io
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

from quickstart_corpus.split import make_corpus

DEFAULT_OUTPUT = Path(__file__).resolve().parents[2] / "quickstart"
FILES = (
    *(f"{split}.{language}.gz" for split in ("train", "valid", "test") for language in ("en", "de")),
    "test.groups.txt.gz",
)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="quickstart_corpus", description="Write the quickstart corpus, or check the one on disk."
    )
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="default: data/quickstart")
    parser.add_argument(
        "--check", action="store_true", help="compare with the files in the folder, write nothing"
    )
    options = parser.parse_args(arguments)
    files = corpus_files()
    if options.check:
        different = [name for name, text in files.items() if not _holds(options.output / name, text)]
        for name in different:
            print(
                f"{options.output / name}: differs from the generated text. Run it without --check.",
                file=sys.stderr,
            )
        return 1 if different else 0
    options.output.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (options.output / name).write_bytes(_compressed(text))
    return 0


def corpus_files() -> dict[str, str]:
    """Returns the text of every file of the corpus, by file name."""
    corpus = make_corpus()
    files = {}
    for split, pairs in (("train", corpus.train), ("valid", corpus.valid), ("test", corpus.test)):
        files[f"{split}.en.gz"] = _lines(pair.english for pair in pairs)
        files[f"{split}.de.gz"] = _lines(pair.german for pair in pairs)
    files["test.groups.txt.gz"] = _lines(pair.group for pair in corpus.test)
    return files


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _compressed(text: str) -> bytes:
    """Returns gzip data without time and file name, so that the bytes depend only on zlib."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=buffer, mode="wb", compresslevel=9, mtime=0) as stream:
        stream.write(text.encode("utf-8"))
    return buffer.getvalue()


def _holds(path: Path, text: str) -> bool:
    """Returns whether a file contains the text; compares it decompressed, since zlib versions differ."""
    try:
        return gzip.decompress(path.read_bytes()) == text.encode("utf-8")
    except (OSError, EOFError, zlib.error):
        return False


if __name__ == "__main__":
    sys.exit(main())
