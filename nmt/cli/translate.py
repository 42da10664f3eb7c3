"""Translates text with a trained model, line by line.

  nmt-translate model_dir=runs/quickstart                      on a terminal: translate typed sentences
  nmt-translate model_dir=DIR < a.txt > b.txt                  from standard input to standard output
  nmt-translate model_dir=DIR input=a.txt output=b.txt         from file to file; b.txt appears when complete
  nmt-translate "model_dir=[DIR,DIR]" < a.txt > b.txt          with an ensemble of models

On a terminal, a line that begins with a colon is a command: :nbest 3, :beam 8, :prefix TEXT, :score and
:attention change the settings. :help lists the commands.

Each input line gives one output line. If it has more sentences than the training lines of the model, they are
translated one by one; decoding.split_sentences=true or false decides for all lines. With scores=true it is
SCORE<TAB>TRANSLATION; the score is the length-normalised log-probability. With decoding.nbest=N or
decoding.samples=N each input line gives N output lines, best first: NUMBER<TAB>SCORE<TAB>TRANSLATION; the
number is that of the input line, from 1. If there are fewer than N translations, the remaining lines have the
score -inf and no text.

A file is translated in its own format, by its name: HTML, XLIFF, TMX, PO, SubRip and WebVTT. Segments without
a translation get one, tags stay, and all else is left as it is. format=text translates the lines of any file.

format=jsonl reads and writes JSON Lines: {"text": ..., "prefix": ..., "constraints": [...], "tag": ...} gives
{"translation": ..., "score": ...}, "nbest" for several translations, and "parts" for several sentences.
column=2 translates the second column of tab-separated values and appends the translation; column=NAME that of
a header. format=csv reads comma-separated values. key=NAME translates another member of JSON Lines.

With terminology=FILE, a file of lines SOURCE TERM<TAB>TARGET TERM, each occurrence of a source term in a line
adds its target term to the translation. A line whose translation lacks a target term is logged.

alignments=FILE writes which words translate each other, one line for each output line, in the format of Moses
and fast_align: 0-0 2-1 joins source word 0 with target word 0, and 2 with 1. Words are separated by white
space. The options decoding.alignment_* choose the attention heads. attention=FILE.html is a page with the
attention of every layer and head in the first 10 lines.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from nmt.cli.app import run
from nmt.cli.input_files import head_of_input, open_rows, whole_input
from nmt.cli.prompt import Settings, converse
from nmt.config import TranslateConfig, folders
from nmt.data.corpora.opening import COMPRESSED
from nmt.decoding.terminology import Terms, configured_terms
from nmt.decoding.translation import ProblemLog, pharaoh, problems
from nmt.documents.files import DocumentFormat, format_of
from nmt.documents.pair import Pair
from nmt.documents.rows import Format, Lines, Request, TranslateRequests, without_added_words
from nmt.errors import UserError
from nmt.runtime.closable_queue import ClosableQueue
from nmt.runtime.files import expanded, require_writable, stat_or_none, written
from nmt.runtime.machine import available_cores
from nmt.runtime.os_errors import write_errors
from nmt.runtime.streams import log, product, progress

if TYPE_CHECKING:
    from nmt.decoding.translation import Translation
    from nmt.decoding.translator import Translator

T = TypeVar("T")
PAIRS_OF_PAGE = 10
"""Largest number of lines on the page of `attention`."""
WINDOW = 16
"""Full batches that are read before their translations are written; more with many worker processes."""


def translate(config: TranslateConfig) -> None:
    """Translates as `config` says. Raises `UserError` if the model, the input or the output can't be used."""
    form = format_of(
        config, lambda: head_of_input(config)
    )  # reports contradictory options before the model is loaded
    is_prompt = config.input is None and config.output is None and _is_terminal()
    if is_prompt and not isinstance(form, Lines):
        given = f"format={config.format}" if config.column is None else f"column={config.column}"
        raise UserError(f"{given}: the prompt reads plain text. Give input=FILE, or a pipe.")
    is_whole = isinstance(form, DocumentFormat)
    content = whole_input(config) if is_whole else b""
    lines, total = ((), 0) if is_whole else open_rows(config, form)
    _check_output(config)
    if config.attention is not None:
        _check_attention(config, is_prompt)
    terms = configured_terms(config)
    translator, alignments = load_translator(config), config.alignments is not None
    if is_prompt:
        with _open_alignments(config) as links:

            def translate_with(settings: Settings) -> TranslateRequests:
                changed = translator.with_options(settings.config.decoding)
                return translation_of_requests(
                    changed, terms, alignments=alignments, attention=settings.attention
                )

            def report(translation: Translation, number: int, current: TranslateConfig) -> None:
                for problem in problems(translation, number):
                    log.warning(problem)
                if links is not None:
                    links.write(formatted_alignments(translation, current, Request("")))

            converse(translate_with, config, report)
    else:
        translate_all = translation_of_requests(
            translator, terms, alignments=alignments, scores=form.has_scores, markup=is_whole
        )
        if isinstance(form, DocumentFormat):
            lines = form.open(content, config.input or "standard input", Pair(*translator.languages))
            total = len(lines)
        pairs: list[tuple[str, str]] = []
        if config.attention is not None:
            translate_all = _noted(translate_all, pairs)
        with _open_output(config) as out, _open_alignments(config) as links:
            window = _window(config, translator.searcher.sentences_per_batch)
            filter_lines(translate_all, form, window, lines, total, out, links)
        if config.attention is not None:
            _write_attention(config.attention, translator, pairs)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def main() -> None:
    """Entry point of `nmt-translate`."""
    run(translate, TranslateConfig, "translate", __doc__ or "")


def load_translator(config: TranslateConfig) -> Translator:
    """Loads the models of `config.model_dir` into a translator.

    Raises:
        UserError: the backend does not have an option, a folder is not a model folder or is damaged, or the
            metric of `decoding.mbr` is not available.
    """
    from nmt.interop import ENGINES  # imports torch, for which --help does not wait

    engine = ENGINES.find(config.backend, f"backend={config.backend}")()
    engine.check(config)
    translator = engine.load(config, folders("model_dir", config.model_dir)).translator(config.decoding)
    # What exists now lives until the end. The garbage collector would read all of it, for a tenth of a second
    # with every thousand lines.
    gc.freeze()
    return translator


def translation_of_requests(
    translator: Translator,
    terms: Terms | None,
    *,
    alignments: bool,
    attention: bool = False,
    scores: bool = True,
    markup: bool = False,
) -> TranslateRequests:
    """Returns a function that translates requests; the other flags are those of `Translator.translate`.

    `terms` returns the constraints of a sentence; None: there are none. `markup`: the tags of lines must be
    tags in their translations.
    """

    def translate_all(requests: Sequence[Request]) -> list[Translation]:
        prefixes = [request.prefix for request in requests]
        phrases = [request.constraints for request in requests]
        translations = translator.translate(
            [request.text for request in requests],
            prefixes=prefixes if any(prefixes) else None,
            terms=phrases if any(phrases) else None,
            terminology=terms,
            alignments=alignments,
            attention=attention,
            scores=scores,
            markup=markup,
        )
        if not any(request.tags for request in requests):
            return translations
        known = translator.tokenizer.source_symbols
        return [
            replace(translation, unknown_tags=tuple(tag for tag in request.tags if tag not in known))
            for request, translation in zip(requests, translations, strict=True)
        ]

    return translate_all


def _check_attention(config: TranslateConfig, is_prompt: bool) -> None:
    option = f"attention={config.attention}"
    if len(folders("model_dir", config.model_dir)) > 1:
        raise UserError(f"{option}: needs one model, not an ensemble. Give one model_dir.")
    if config.backend != "nmt":
        raise UserError(f"{option}: backend={config.backend} has no weights of all heads. Leave one out.")
    if is_prompt:
        raise UserError(f"{option}: the prompt shows attention with :attention. Give input=FILE, or a pipe.")


def _noted(translate_all: TranslateRequests, pairs: list[tuple[str, str]]) -> TranslateRequests:
    """Returns the same function, which adds the first lines and their translations to `pairs`."""

    def noted(requests: Sequence[Request]) -> list[Translation]:
        translations = translate_all(requests)
        for request, translation in zip(requests, translations, strict=True):
            if len(pairs) < PAIRS_OF_PAGE and request.text.strip():
                pairs.append((request.text, translation.hypotheses[0].text))
        return translations

    return noted


def _write_attention(path: str, translator: Translator, pairs: Sequence[tuple[str, str]]) -> None:
    """Writes the page of the attention in pairs; a pair that is too long is left out, with a warning."""
    from nmt.decoding.attention_page import MOST_BYTES, attention_page
    from nmt.decoding.pairs import PairReader
    from nmt.decoding.torch_searcher import TorchSearcher

    assert isinstance(translator.searcher, TorchSearcher)
    reader = PairReader(translator.searcher, translator.tokenizer)
    shown = reader.attentions(pairs, MOST_BYTES, lambda error: log.warning("%s", error))
    content = attention_page(shown)
    if content is None:
        log.warning("attention=%s: there is no line to show, so the page is not written.", path)
        return
    with written(Path(path)) as page:
        page.write(content.encode())


def filter_lines(
    translate_all: TranslateRequests,
    form: Format,
    window: int,
    lines: Iterable[str],
    total: int | None,
    out: BinaryIO,
    links: BinaryIO | None,
) -> None:
    """Writes the translations of `lines` to `out`, and a summary to the log.

    Args:
        translate_all: translates requests.
        form: the format of the lines, with the options.
        window: the number of lines that are translated together.
        lines: the input.
        total: the number of lines. None: unknown, because another program or the user is still writing them.
            Then each line is translated as soon as it arrives.
        out: the file for the translations.
        links: the file for the alignments; None: no alignments.
    """
    config, start = form.config, time.monotonic()
    num_lines = num_tokens = 0
    found = ProblemLog()
    requests = (form.read(line, number) for number, line in enumerate(lines, 1))
    windows = full_windows(requests, window) if total is not None else ready_windows(requests, window)
    hidden = total is None or (config.output is None and product().isatty())
    with progress(total=total, unit="lines", description="Translating", hidden=hidden) as bar:
        for part in windows:
            for request, translation in zip(part, translate_all(part), strict=True):
                num_lines += 1
                num_tokens += translation.num_tokens
                out.write(form.write(request, translation, num_lines))
                if links is not None:
                    links.write(formatted_alignments(translation, config, request))
                if total is None:
                    out.flush()
                    if links is not None:
                        links.flush()
                bar.update(1)
                if request.error is not None:
                    log.warning(request.error)
                found.add(translation, num_lines)
        out.write(form.end())
        out.flush()
    found.end()
    seconds = time.monotonic() - start
    rate = num_lines / max(seconds, 1e-9)
    log.info(f"{num_lines:,} lines, {num_tokens:,} tokens, {seconds:,.1f} s, {rate:,.0f} lines/s")


def full_windows(lines: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields windows of `size` lines; the last window may be shorter. For files."""
    iterator = iter(lines)
    while window := list(itertools.islice(iterator, size)):
        yield window


def ready_windows(lines: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields windows of the available lines, at most `size`; waits only if there are none. For pipes.

    A thread reads at most one window ahead while the caller works on the previous window. An exception of
    `lines` is raised here, after all lines before it have been yielded.
    """
    queue: ClosableQueue[T] = ClosableQueue(size)
    threading.Thread(target=queue.fill, args=(lines,), name="lines", daemon=True).start()
    try:
        while window := queue.take_all():
            yield window
    finally:
        queue.close()


def _window(config: TranslateConfig, sentences_per_batch: int) -> int:
    """Returns the number of lines that are translated together: some batches for each worker process."""
    wanted = config.decoding.workers
    processes = config.threads or available_cores() if wanted == "auto" else int(wanted)
    return max(WINDOW, 4 * processes) * sentences_per_batch


def formatted_alignments(translation: Translation, config: TranslateConfig, request: Request) -> bytes:
    """Returns a line of links for each output line of plain text; it is empty if there are no links."""
    lines = [
        pharaoh(without_added_words(hypothesis.alignment, request)) for hypothesis in translation.hypotheses
    ]
    lines += [""] * (config.decoding.num_results - len(lines))
    return "".join(f"{line}\n" for line in lines).encode()


def _check_output(config: TranslateConfig) -> None:
    """Checks before hours of translating that the output and the alignments can be written."""
    others = {
        "the input": os.fstat(sys.stdin.fileno()) if config.input is None else expanded(config.input).stat()
    }
    terms = None if config.terminology is None else stat_or_none(expanded(config.terminology))
    if terms is not None:
        others["the terminology file"] = terms
    given: dict[str, str] = {}
    for key in ("output", "alignments", "attention"):
        name = getattr(config, key)
        if name is None:
            continue
        if name in ("true", "false"):
            raise UserError(f"{key}={name}: must name a file. Give a name, or ./{name} if that is the name.")
        path = expanded(name)
        if path.suffix in COMPRESSED:
            raise UserError(
                f"{key}={name}: the file would not be compressed. Give a name without {path.suffix}"
                + (f", or write to a pipe: nmt-translate ... | gzip > {name}" * (path.suffix == ".gz"))
                + "."
            )
        require_writable(path, f"{key}={name}")
        for what, real in given.items():
            if os.path.realpath(path) == real:
                raise UserError(f"{key}={name}: is also the {what}. Give another name.")
        given[key] = os.path.realpath(path)
        for what, other in others.items():
            if path.is_file() and os.path.samestat(other, path.stat()):
                raise UserError(f"{key}={name}: is also {what}. Give another name.")


@contextlib.contextmanager
def _open_output(config: TranslateConfig) -> Iterator[BinaryIO]:
    if config.output is None:
        with write_errors(Path("standard output")):
            yield product().buffer
        return
    with written(Path(config.output)) as out:
        yield out


def _open_alignments(config: TranslateConfig) -> AbstractContextManager[BinaryIO | None]:
    return contextlib.nullcontext() if config.alignments is None else written(Path(config.alignments))


if __name__ == "__main__":
    main()
