"""`nmt.load` and `nmt.Model`: translate and score texts in memory with trained models."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from nmt.api.lines import line_of, pairs_of, phrases_of
from nmt.api.session import Folder, session
from nmt.config import TrainConfig, TranslateConfig
from nmt.decoding.loading import LoadedModels
from nmt.decoding.terminology import load_terminology
from nmt.decoding.translation import ProblemLog
from nmt.documents.files import file_of
from nmt.documents.pair import Pair
from nmt.errors import UserError
from nmt.evaluation.task import configured_utility
from nmt.options.compose import changed_decoding
from nmt.runtime.files import written
from nmt.runtime.forks import undivided
from nmt.runtime.guest import Guest, as_guest, torch_for_nmt
from nmt.runtime.plugins import import_plugins
from nmt.runtime.streams import log
from nmt.runtime.streams import progress as progress_bar

if TYPE_CHECKING:
    from nmt.decoding.alignment import Alignment
    from nmt.decoding.head_choice import HeadChoice
    from nmt.decoding.pairs import PairAttention, PairReader
    from nmt.decoding.scoring import ScoredTarget
    from nmt.decoding.translation import ScoredText, Translation
    from nmt.decoding.translator import Translator


def load(
    model_dir: Folder | Sequence[Folder],
    *,
    device: str = "auto",
    precision: str = "fp32",
    threads: int = 0,
    plugins: Sequence[str] = (),
) -> Model:
    """Loads a trained model, or several models that translate together (an ensemble).

    Args:
        model_dir: a model folder, the folder of a finished run, a checkpoint, or `hf://owner/name`, a model
            on the Hugging Face hub; or a list of them.
        device: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
        precision: `fp32`, or `bf16` or `fp16` for speed. With these two the text may depend on the batch.
        threads: CPU threads of each call; 0: one a core. After the call torch has its previous number.
        plugins: Python modules to import first; see docs/extending.md.

    Raises:
        UserError: a folder is not a model folder or is damaged, the vocabularies differ, or the device is not
            available.
    """
    if isinstance(model_dir, str | os.PathLike):
        model_dir = [model_dir]
    folders = [os.fspath(folder) for folder in model_dir]
    config = TranslateConfig(folders, device=device, precision=precision, threads=threads)
    with session(progress=False), undivided():
        import_plugins(plugins)
        return Model(LoadedModels.load(config), config, plugins)


class Model:
    """A model or an ensemble that `nmt.load` has loaded. Several threads may use the same `Model`.

    So may processes of `multiprocessing` (`pool.map(model.translate, lines)`): a forked process computes with
    one thread in the memory of its parent. Another process loads the folders, once, because a model is
    pickled as their paths and the options of `nmt.load`.

    The `**decoding` arguments of a method are options of the section `decoding`, such as `beam_size=8` or
    `length_penalty=1.0`. The other options have their values from the training of the (first) model.

    Attributes:
        folders: the model folders.
        config: all options that the (first) model was trained with.
        source_lang: code of the source language.
        target_lang: code of the target language.
    """

    folders: tuple[Path, ...]
    config: TrainConfig
    source_lang: str
    target_lang: str

    def __init__(self, loaded: LoadedModels, config: TranslateConfig, plugins: Sequence[str]) -> None:
        self.folders = tuple(bundle.folder for bundle in loaded.bundles)
        self.config = loaded.bundles[0].config
        self.source_lang, self.target_lang = self.config.data.source_lang, self.config.data.target_lang
        self._loaded, self._threads = loaded, config.threads
        options = {"device": config.device, "precision": config.precision, "threads": config.threads}
        self._key, self._options = os.urandom(8), {**options, "plugins": [*plugins]}
        _models[self._key] = self
        self._built: dict[tuple[tuple[str, str], ...], tuple[Translator, PairReader]] = {}
        self._readers({})  # moves the models to the device

    def __repr__(self) -> str:
        names = ", ".join(map(str, self.folders))
        return f"<nmt.Model {self.source_lang}-{self.target_lang} from {names}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._key, [os.path.abspath(folder) for folder in self.folders], self._options)

    @overload
    def translate(
        self,
        lines: str,
        *,
        progress: bool = False,
        constraints: Sequence[Sequence[str]] | None = None,
        terminology: Folder | None = None,
        **decoding: Any,
    ) -> str: ...

    @overload
    def translate(
        self,
        lines: Iterable[str],
        *,
        progress: bool = False,
        constraints: Sequence[Sequence[str]] | None = None,
        terminology: Folder | None = None,
        **decoding: Any,
    ) -> list[str]: ...

    def translate(
        self,
        lines: str | Iterable[str],
        *,
        progress: bool = False,
        constraints: Sequence[Sequence[str]] | None = None,
        terminology: Folder | None = None,
        **decoding: Any,
    ) -> str | list[str]:
        """Translates lines, each into one line, or one line given as a string.

        Args:
            lines: raw text. Line ends are ignored, so an open file is accepted. The translation of a blank
                line is empty. A line without letters is copied, and a line in capitals may be translated in
                ordinary case (`case`). The sentences of a line are translated one by one if they are more, or
                the line is longer, than in the training; `split_sentences=True` or `False` decides for all
                lines.
            progress: whether to show a progress bar on standard error.
            constraints: for each line a list of the phrases that its translation must contain.
            terminology: a file of required translations, as for `nmt-translate`.
            **decoding: options of the section `decoding`.

        Returns:
            The best translation of each line, in order; a string if `lines` is a string.

        Raises:
            UserError: an option is unknown or has a wrong value, a line contains a line break, or a batch
                does not fit into memory.
        """
        if "nbest" in decoding:
            raise UserError("decoding.nbest: translate returns only the best one. Use translate_nbest.")
        alone = isinstance(lines, str)
        translations = self._translated(lines, progress, decoding, constraints, terminology)
        texts = [translation.hypotheses[0].text for translation in translations]
        return texts[0] if alone else texts

    def translate_nbest(
        self,
        lines: Iterable[str],
        *,
        progress: bool = False,
        constraints: Sequence[Sequence[str]] | None = None,
        terminology: Folder | None = None,
        alignments: bool = False,
        **decoding: Any,
    ) -> list[list[ScoredText]]:
        """Returns several translations of each line, at most `nbest=N`, with their scores.

        Args:
            lines: as for `translate`.
            progress: as for `translate`.
            constraints: as for `translate`.
            terminology: as for `translate`.
            alignments: whether to align the words of each translation with those of its line.
            **decoding: options of the section `decoding`, such as `nbest=4, beam_size=8`.

        Returns:
            For each line its translations, best first. Each has a `text` and a `score`: the natural logarithm
            of its probability, divided by the length penalty; of several sentences, the mean. With
            `alignments`, its `alignment` has pairs of source word and target word, from 0. A short line may
            have fewer than `nbest`.

        Raises:
            UserError: as for `translate`; or a model has no attention to the source.
        """
        translations = self._translated(
            lines, progress, decoding, constraints, terminology, alignments=alignments
        )
        return [list(translation.hypotheses) for translation in translations]

    def translate_file(
        self,
        path: Folder,
        output: Folder,
        *,
        format: str = "auto",
        column: int | str | None = None,
        key: str = "text",
        progress: bool = False,
        terminology: Folder | None = None,
        **decoding: Any,
    ) -> None:
        """Translates a file in its own format, as `nmt-translate input=FILE output=FILE` does.

        Args:
            path: the file.
            output: the file to write, at once.
            format: as the option of `nmt-translate`; `auto`: by the name of the file or its content.
            column: the number or the name of the column of a table.
            key: the member to translate of JSON.
            progress: as for `translate`.
            terminology: as for `translate`.
            **decoding: options of the section `decoding`.

        Raises:
            UserError: the file is malformed or in other languages, can't be read or written, or as for
                `translate`.
        """
        if "nbest" in decoding:
            raise UserError("decoding.nbest: translate_file writes only the best one. Use translate_nbest.")
        languages = Pair(self.source_lang, self.target_lang)
        file, is_whole = file_of(os.fspath(path), languages, format=format, column=column, key=key)
        translations = self._translated(file.lines, progress, decoding, None, terminology, markup=is_whole)
        with written(Path(output)) as out:
            out.write(file.written(translations))

    def score(self, pairs: Iterable[tuple[str, str]], *, progress: bool = False) -> list[float]:
        """Scores given translations.

        Args:
            pairs: sources with their translations, raw text.
            progress: whether to show a progress bar on standard error.

        Returns:
            For each pair the natural logarithm of the probability of the whole translation, including its end
            (EOS), without a length penalty. It is at most 0. If the source is blank and the translation is
            not, it is minus infinity.

        Raises:
            UserError: a line contains a line break, or a batch does not fit into memory.
        """
        return [scored.log_prob for scored in self._scored(pairs, progress)]

    def score_tokens(
        self, pairs: Iterable[tuple[str, str]], *, progress: bool = False
    ) -> list[tuple[float, ...]]:
        """Returns the natural logarithm of the probability of each token of given translations, EOS last.

        `score` returns their sum; `exp(-sum / number)` is the perplexity per token.

        Args:
            pairs: as for `score`.
            progress: as for `score`.

        Raises:
            UserError: as for `score`.
        """
        return [scored.token_log_probs for scored in self._scored(pairs, progress)]

    def align(
        self, pairs: Iterable[tuple[str, str]], *, progress: bool = False, **decoding: Any
    ) -> list[Alignment]:
        """Aligns the words of given translations.

        Args:
            pairs: as for `score`.
            progress: as for `score`.
            **decoding: options of the section `decoding`, such as `alignment_threshold=0.2`.

        Returns:
            For each pair its links in the order of the target words, at most one for each: the numbers of the
            source word and of the target word, from 0. Words are separated by white space.

        Raises:
            UserError: as for `score`; or a model has no attention to the source.
        """
        texts, (_, reader) = pairs_of(pairs), self._readers(decoding)
        with as_guest(Guest(progress)), torch_for_nmt(self._threads):
            with progress_bar(total=len(texts), unit="pairs", description="Aligning") as bar:
                return reader.align(texts, bar.update)

    def attention(self, source: str, target: str | None = None, **decoding: Any) -> PairAttention:
        """Returns the attention weights of every layer and head in a sentence pair, for looking at.

        Args:
            source: a sentence, which is read as a whole.
            target: its translation, which the decoder reads (teacher forcing); None: that of `translate`.
            **decoding: options of the section `decoding`, for the translation.

        Returns:
            The pieces of both sides, and the weights as arrays: `encoder` (L, H, S, S), `decoder`
            (L, H, T, T) and `cross` (L, H, T, S), for L layers, H heads, S source tokens and T target tokens.
            A recurrent model has `cross` alone, with one layer and one head.

        Raises:
            UserError: this is an ensemble, the source is blank, a side is too long or has a line break, or
                the model has no attention to the source.
        """
        if len(self.folders) > 1:
            raise UserError("attention: needs one model. Load each model alone.")
        if target is None:
            target = self.translate(source, **{"split_sentences": False, **decoding})
        [pair], (_, reader) = pairs_of([(source, target)]), self._readers(decoding)
        with as_guest(Guest(False)), torch_for_nmt(self._threads):
            return reader.attention(*pair)

    def attention_page(self, pairs: Iterable[tuple[str, str]], title: str = "Attention") -> str:
        """Returns an HTML page of the attention in sentence pairs; see `nmt-translate attention=FILE`.

        It has all layers and heads as maps and as lines, and what each head does in numbers. The pairs should
        be few and short: those after the first that would make the page larger than 2 MB are left out.

        Raises:
            UserError: as for `attention`, or there are no pairs.
        """
        from nmt.decoding.attention_page import attention_page

        page = attention_page((self.attention(*pair) for pair in pairs), title)
        if page is None:
            raise UserError("attention_page: there are no pairs. Give one or more.")
        return page

    def choose_alignment_heads(self, pairs: Iterable[tuple[str, str]]) -> HeadChoice:
        """Chooses the attention heads that align words best, from sentence pairs without alignments.

        `nmt-train` does the same at its end, with the training and validation pairs.

        Args:
            pairs: as for `score`; several thousand are best. The first 200 of at most 60 pieces are decoded.

        Returns:
            The choice. `choice.as_dict()` has the values of `alignment_heads` and `alignment_shift`.

        Raises:
            UserError: this is an ensemble, the model has no attention to the source, or the pairs are too
                few.
        """
        if len(self.folders) > 1:
            raise UserError("choose_alignment_heads: needs one model. Load each model alone.")
        texts, (_, reader) = pairs_of(pairs), self._readers({})
        with as_guest(Guest(False)), torch_for_nmt(self._threads):
            choice = reader.choose_heads(texts)
        if choice is None:
            raise UserError("choose_alignment_heads: the pairs have too few reliable links. Give more pairs.")
        return choice

    def _translated(
        self,
        lines: str | Iterable[str],
        shown: bool,
        decoding: dict[str, Any],
        constraints: Sequence[Sequence[str]] | None,
        terminology: Folder | None,
        *,
        alignments: bool = False,
        markup: bool = False,
    ) -> list[Translation]:
        lines = [lines] if isinstance(lines, str) else lines
        texts = [line_of(line, f"line {number}") for number, line in enumerate(lines, 1)]
        phrases, (translator, _) = phrases_of(texts, constraints), self._readers(decoding)
        terms = None if terminology is None else load_terminology(terminology).targets
        with as_guest(Guest(shown)), torch_for_nmt(self._threads):
            with progress_bar(total=len(texts), unit="lines", description="Translating") as bar:
                translations = translator.translate(
                    texts,
                    bar.update,
                    constraints=phrases,
                    terminology=terms,
                    alignments=alignments,
                    markup=markup,
                )
        problems = ProblemLog()
        for number, translation in enumerate(translations, 1):
            problems.add(translation, number)
        problems.end()
        return translations

    def _scored(self, pairs: Iterable[tuple[str, str]], shown: bool) -> list[ScoredTarget]:
        texts, (_, reader) = pairs_of(pairs), self._readers({})
        with as_guest(Guest(shown)), torch_for_nmt(self._threads):
            with progress_bar(total=len(texts), unit="pairs", description="Scoring") as bar:
                scores = reader.score(texts, bar.update)
        for number, scored in enumerate(scores, 1):
            if scored.truncated:
                searcher = reader.searcher
                log.warning(
                    f"source {number}: cut to {searcher.max_source_tokens:,} of {scored.truncated:,} tokens "
                    f"({searcher.source_limit})"
                )
        return scores

    def _readers(self, changes: dict[str, Any]) -> tuple[Translator, PairReader]:
        """Returns a translator and a reader of pairs with changed options; both are built once."""
        key = tuple(sorted((name, repr(value)) for name, value in changes.items()))
        if key not in self._built:
            decoding = changed_decoding(self.config.decoding, changes) if changes else self.config.decoding
            utility = configured_utility(decoding, self.target_lang)
            self._built[key] = self._loaded.readers(decoding, utility)
        return self._built[key]


_models: weakref.WeakValueDictionary[bytes, Model] = weakref.WeakValueDictionary()
"""The models of this process, and of the process from which it was forked, by their keys."""
_last_unpickled: list[Model] = []


def _unpickled(key: bytes, folders: Sequence[str], options: dict[str, Any]) -> Model | _NotLoaded:
    """Returns the model with this key; loads it if this process does not have it.

    A pool of processes unpickles a model with each of its tasks, so the last one is retained.
    """
    if (model := _models.get(key)) is None:
        try:
            model = _models[key] = load(folders, **options)
        except Exception as error:
            return _NotLoaded(error)
        model._key = key
        _last_unpickled[:] = [model]
    return model


class _NotLoaded:
    """A model that this process could not load: each use raises the error.

    An error while a task is unpickled would end a process of `multiprocessing.Pool`, and the pool would wait
    for the result forever.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def fail(*arguments: Any, **options: Any) -> Any:
            raise self._error

        return fail if callable(getattr(Model, name, None)) else fail()
