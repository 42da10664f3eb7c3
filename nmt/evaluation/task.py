"""The evaluation task of `nmt-eval` and `nmt.evaluate`, from its options to its report."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.config import (
    DataConfig,
    DecodingConfig,
    EvalConfig,
    EvaluationConfig,
    Significance,
    folders,
    storage,
)
from nmt.data.corpora.text import expand, read_lines
from nmt.decoding.candidates import Utility
from nmt.decoding.loading import LoadedModels, set_up
from nmt.decoding.translation import ProblemLog
from nmt.errors import UserError
from nmt.evaluation.analysis.model_signs import THRESHOLD, ModelFacts, token_scores, unaligned_shares
from nmt.evaluation.analysis.result import analyse
from nmt.evaluation.analysis.signs import Texts
from nmt.evaluation.keys import TEXTS, as_option, check_keys
from nmt.evaluation.metrics import Text, metric_kinds, metrics_for
from nmt.evaluation.metrics.base import numbers_of
from nmt.evaluation.model_data import read_data, training_counts
from nmt.evaluation.report import Report
from nmt.evaluation.scores import (
    TRIALS,
    compare,
    composed_share,
    looks_tokenized,
    recognised_languages,
    require_equal_counts,
    score,
    score_groups,
    warn_of_words,
)
from nmt.evaluation.systems import SYSTEMS, system_names
from nmt.languages import country_warning, distance, language_of
from nmt.runtime.hub import pinned
from nmt.runtime.streams import log, progress

if TYPE_CHECKING:
    from nmt.bundle import Bundle
    from nmt.data.corpora.held_out import HeldOut
    from nmt.decoding.pairs import PairReader
    from nmt.decoding.translation import Translation


def evaluate(config: EvalConfig, texts: Mapping[str, Sequence[list[str]]] | None = None) -> Report:
    """Scores the model or the hypotheses that `config` names.

    Args:
        config: the options.
        texts: lines in memory: key of `TEXTS` → a list of one text; `references` may have more. The options
            must not name these.

    Raises:
        UserError: keys exclude each other, files can't be read or written or have unequal length, a model
            can't be loaded, or the data of the model are no longer available.
    """
    texts = texts or {}
    check_keys(config, texts)
    task = read_files(config, texts)
    bundles = load_models(config, task)
    _refuse_single(config, texts, task)
    if not bundles and not task.target_lang:
        task.target_lang, task.target_langs = recognised_languages(
            task.references[0],
            task.texts.get("groups", ()),
            task.options,
            as_option("references", config.references),
        )
    for part in task.parts():
        part.check()
        warn_of_words("target_lang", part.target_lang, part.options.metrics)
    if bundles:
        if config.analysed:
            counts = training_counts(bundles[0], [line for part in task.parts() for line in part.sources])
            for part in task.parts():
                part.counts_of_words = counts
        task.texts["hypotheses"] = _translate(config, bundles, task)
        _warn_of_normalised_target(bundles[0], task.references[0])
    elif all(looks_tokenized(task.texts["hypotheses"], reference) for reference in task.references):
        log.warning(
            "%s: seems to be tokenised (lines end in ' .'), but scores need raw text. Detokenise it first.",
            as_option("hypotheses", config.hypotheses),
        )
    for part in task.parts():
        for reference in part.references:
            _warn_of_forms(part.texts["hypotheses"], reference, as_option("references", config.references))
    return task.report()


def _refuse_single(config: EvalConfig, in_memory: Collection[str], task: Task) -> None:
    """Refuses options for a single set, if there are several."""
    for key in ("baseline", "groups", "target_lang", "source_lang") if task.sets else ():
        if (value := getattr(config, key)) is not None or key in in_memory:
            raise UserError(
                f"{as_option(key, value)}: data.{config.split} has several sets. Give set=NAME to score one "
                f"of {', '.join(task.sets)}."
            )


def _warn_of_normalised_target(bundle: Bundle, references: Sequence[str]) -> None:
    """Warns if the model can't write the references as they are."""
    from nmt.data.subwords.normalization import of_side, warn_of_changed_targets

    warn_of_changed_targets(of_side(references, bundle.tokenizer.target), "the references")


_FORM_SHARE = 0.05
"""Largest difference of two texts in their share of lines in NFC, without a warning."""


def _warn_of_forms(hypotheses: Sequence[str], references: Sequence[str], name: str) -> None:
    """Warns if a text of references has another Unicode form than the hypotheses: no score ignores it."""
    ours, theirs = composed_share(hypotheses), composed_share(references)
    if abs(ours - theirs) > _FORM_SHARE:
        log.warning(
            "%s: differs from the hypotheses in Unicode form: %.0f%% of its lines and %.0f%% of the "
            "hypotheses are NFC (composed letters). Equal letters in two forms count as errors. Convert both "
            "texts to NFC.",
            name, 100 * theirs, 100 * ours,
        )  # fmt: skip


@dataclass
class Task:
    """The texts and options of one evaluation, or of one set of it.

    Attributes:
        title: the first line of the report.
        systems, heading: as in the report.
        texts: key → lines, for all texts except the references.
        references: the lines of each text of references; one or more texts.
        sources: the lines of the source text without tags; empty if it is not known.
        target_langs: the language of each reference, if they are in several, which tags of the sources name.
        counts: name of each text in messages → its number of lines.
        details: further entries of the JSON.
        trials: number of trials of the test against a baseline; None: it is by bootstrap.
        source_lang: language of the sources; empty if unknown.
        analysed: whether the report has an analysis.
        model: what the model says about the hypotheses, for the analysis; None if they are given.
        counts_of_words: how often each word of the sources occurs in the training text; None: unknown.
        sets: name → task of each named set of the data; `texts` and `references` have all their lines. Empty
            if there is one set.
    """

    title: str = ""
    systems: tuple[str, str] = SYSTEMS
    heading: str = ""
    target_lang: str = ""
    options: EvaluationConfig = field(default_factory=EvaluationConfig)
    texts: dict[str, list[str]] = field(default_factory=dict)
    references: list[list[str]] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    target_langs: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    trials: int | None = None
    source_lang: str = ""
    analysed: bool = False
    model: ModelFacts | None = None
    counts_of_words: Mapping[str, int] | None = None
    sets: dict[str, Task] = field(default_factory=dict)

    def parts(self) -> list[Task]:
        """Returns the tasks that are scored: those of the sets, or this one."""
        return list(self.sets.values()) or [self]

    def add(self, key: str, lines: list[str], name: str) -> None:
        """Adds a text. Several texts may have the key `references`; each translates every sentence."""
        if key == "references":
            self.references.append(lines)
        else:
            self.texts[key] = lines
        self.counts[name] = len(lines)

    def add_held_out(self, text: HeldOut, key: str) -> None:
        """Adds a set; groups and a language that are given already are retained. `key` is its name."""
        self.add("source", text.inputs, f"{key}'s source")
        self.sources = text.sources
        self.add("references", text.references, f"{key}'s target")
        if text.groups is not None and "groups" not in self.texts:
            self.add("groups", text.groups, f"{key}.groups")
        self.source_lang = text.source_lang
        if not self.target_lang:
            self.target_lang, self.target_langs = text.target_lang, list(text.target_langs)

    def add_sets(self, sets: Mapping[str, HeldOut], key: str) -> None:
        """Adds several named sets."""
        for name, text in sets.items():
            self.sets[name] = Task(
                name, options=self.options, details={"data": text.facts}, analysed=self.analysed
            )
            self.sets[name].add_held_out(text, f"{key}.sets.{name}")
        texts = sets.values()
        self.add("source", [line for text in texts for line in text.inputs], f"{key}'s sources")
        self.add("references", [line for text in texts for line in text.references], f"{key}'s targets")

    def check(self) -> None:
        """Checks in advance whether scoring would fail, before hours of translating."""
        require_equal_counts(self.counts)
        for target_lang in dict.fromkeys([self.target_lang, *self.target_langs]):
            metrics_for(target_lang, self.options)

    def report(self) -> Report:
        """Scores the texts and returns the report."""
        if self.sets:
            reports = {name: part.report() for name, part in self.sets.items()}
            hypotheses = self.texts["hypotheses"]
            return Report.of_sets(
                self.title, reports, details=self.details, hypotheses=hypotheses, heading=self.heading
            )
        texts, metrics = self.texts, metrics_for(self.target_lang, self.options)
        hypotheses, references, sources = texts["hypotheses"], self.references, self.sources
        scores = score(hypotheses, references, metrics, sources=sources)
        groups, comparison = {}, None
        if labels := texts.get("groups") or self.target_langs:
            groups = score_groups(
                *(hypotheses, references, labels, metrics),
                sources=sources,
                target_langs=self.target_langs,
                options=self.options,
            )
        if "baseline" in texts:
            comparison = compare(
                hypotheses, texts["baseline"], references, metrics, sources=sources, trials=self.trials
            )
        report = Report(
            *(self.title, scores, groups, comparison, self.details, hypotheses),
            systems=self.systems,
            heading=self.heading,
        )
        if not self.analysed:
            return report
        analysis = analyse(
            hypotheses,
            Texts(references, sources, self.source_lang, self.target_lang),
            metrics,
            baseline=texts.get("baseline", ()),
            comparison=comparison,
            model=self.model,
            counts=self.counts_of_words,
            target_langs=self.target_langs,
            options=self.options,
        )
        return replace(report, analysis=analysis)


def read_files(config: EvalConfig, in_memory: Mapping[str, Sequence[list[str]]]) -> Task:
    """Reads the texts that the options name, and takes the others from memory.

    Raises:
        UserError: a file can't be read.
    """
    task = Task(target_lang=config.target_lang or "", options=config.evaluation, analysed=config.analysed)
    task.source_lang = config.source_lang or ""
    if (warning := country_warning("target_lang", task.target_lang)) is not None:
        log.warning("%s", warning)
    for key in TEXTS:
        value = getattr(config, key)
        if value is None:
            several = len(in_memory.get(key, ())) > 1
            for number, lines in enumerate(in_memory.get(key, ()), 1):
                task.add(key, lines, f"{key} {number}" if several else key)
            continue
        task.details.setdefault("files", {})[key] = value
        paths = expand(value, key, several=key == "references")
        if key == "references" and len(paths) > 1:
            for path in paths:
                task.add(key, list(read_lines(path)), f"{key}={path}")
        else:
            lines = [line for path in paths for line in read_lines(path)]
            task.add(key, lines, as_option(key, value))
    task.sources = task.texts.get("source", [])
    if config.significance is Significance.randomisation:
        task.trials = TRIALS
    task.title = f"{_title_files('hypotheses', config)} on {_title_files('references', config)}"
    task.systems = system_names(config.hypotheses or config.model_dir, config.baseline)
    names = (Path(name).name for name in _title_files("references", config).split(", "))
    task.heading = _heading(task, ", ".join(names))
    return task


def _heading(task: Task, text: str) -> str:
    ours, theirs = task.systems
    return f"{ours} compared with {theirs} on {text}" if "baseline" in task.texts else f"{ours} on {text}"


def _title_files(key: str, config: EvalConfig) -> str:
    """Returns the files of an option, for titles; the key for lines in memory."""
    return as_option(key, getattr(config, key)).removeprefix(f"{key}=")


def load_models(config: EvalConfig, task: Task) -> list[Bundle]:
    """Loads the models, if any, and adds the data and languages of the (first) model to the task.

    Raises:
        UserError: a model can't be loaded, or its data are no longer available.
    """
    paths = list(map(pinned, folders("model_dir", config.model_dir)))
    if not paths:
        return []
    from nmt.bundle import load_bundles  # imports torch; other evaluations start without it

    bundles = load_bundles(paths)
    bundle = bundles[0]
    trained_on = bundle.config.data
    data = config.data or trained_on
    scored_on, pairs = _title_files("references", config), [(data.source_lang, data.target_lang)]
    if not task.references:
        sets = read_data(config, bundle, bundle.tokenizer.source_symbols)
        key = f"data.{config.split}"
        if "" in sets or config.set is not None:
            ((name, text),) = sets.items()
            task.add_held_out(text, f"{key}.sets.{name}" if name else key)
            task.details["data"] = text.facts
            scored_on = f"{data.name} ({', '.join(filter(None, (config.split, name)))})"
            scored_on += f", {text.source_lang}-{text.target_lang}"
        else:
            task.add_sets(sets, key)
            scored_on = f"{data.name} ({config.split}), {len(sets)} set{'s' if len(sets) > 1 else ''}"
        task.heading = _heading(task, scored_on)
        pairs = [(text.source_lang, text.target_lang) for text in sets.values()]
        task.details |= {"split": config.split} | ({} if config.set is None else {"set": config.set})
    elif not config.target_lang:
        langs = trained_on.target_langs(task.texts["source"], data.target_lang)
        task.target_lang, task.target_langs = data.target_lang, langs
        if len(set(langs)) == 1:
            task.target_lang, task.target_langs = langs[0], []
    if not task.source_lang:
        task.source_lang = trained_on.source_lang
    _warn_of_other_languages(trained_on, pairs)
    task.title = f"{' + '.join(paths)} on {scored_on}"
    task.details["model_dir"] = paths[0] if isinstance(config.model_dir, str) else paths
    return bundles


def _warn_of_other_languages(trained_on: DataConfig, pairs: Sequence[tuple[str, str]]) -> None:
    """Warns if the data have a pair of languages that is not among those of the training data."""
    for pair in pairs:
        if not any(
            None not in (distance(pair[0], known[0]), distance(pair[1], known[1]))
            for known in trained_on.language_pairs()
        ):
            log.warning(
                "the model translates from %s to %s, but the data are from %s to %s",
                *(trained_on.source_lang, trained_on.target_lang, *pair),
            )


def _translate(config: EvalConfig, bundles: Sequence[Bundle], task: Task) -> list[str]:
    loaded = LoadedModels(bundles, *set_up(config))
    decoding = config.decoding.for_segments()
    sources = task.texts["source"]
    translations: list[Translation] = []
    with progress(total=len(sources), unit="sentences", description="Translating") as bar:
        for part in task.parts():
            utility = configured_utility(decoding, part.target_lang, config.evaluation)
            aligns = config.analysis and _can_align(part, bundles)
            if aligns:
                decoding = replace(decoding, alignment_threshold=THRESHOLD)
            translator, reader = loaded.readers(decoding, utility)
            of_part = translator.translate(part.texts["source"], bar.update, alignments=aligns)
            part.texts["hypotheses"] = [translation.hypotheses[0].text for translation in of_part]
            part.model = ModelFacts(
                [translation.hypotheses[0].score for translation in of_part],
                token_scores(of_part, decoding.length_penalty),
                _unaligned(part, of_part, reader) if aligns else (),
            )
            translations += of_part
    if cut := [translation for translation in translations if translation.truncated]:
        warn_of_cut_sources(len(cut), len(sources), cut[0].cut_to, cut[0].cut_by)
    if appended := sum(translation.appended > 0 for translation in translations):
        log.warning(f"{appended:,} of {len(sources):,} translations: URLs, tags or variables appended")
    problems = ProblemLog()
    for number, translation in enumerate(translations, 1):
        problems.add(translation, number, others=False)
    problems.end()
    task.details |= {"decoding": storage.to_plain(config.decoding), "precision": loaded.precision.name}
    return [translation.hypotheses[0].text for translation in translations]


def _can_align(task: Task, bundles: Sequence[Bundle]) -> bool:
    """Returns whether shares of unaligned words mean something: each model has chosen heads, and words."""
    from nmt.decoding.alignment import AlignmentHeads  # imports torch

    chosen = all(AlignmentHeads.from_results(bundle.results) is not None for bundle in bundles)
    return chosen and all(language_of(code).has_spaces for code in (task.source_lang, task.target_lang))


def _unaligned(
    task: Task, translations: Sequence[Translation], reader: PairReader
) -> list[list[float | None]]:
    """Returns the shares of unaligned words; see `ModelFacts`."""
    links = [translation.hypotheses[0].alignment for translation in translations]
    shares = [unaligned_shares(task.texts["hypotheses"], links)]
    for lines in [*filter(None, [task.texts.get("baseline")]), task.references[0]]:
        links = reader.align([*zip(task.texts["source"], lines, strict=True)])
        shares.append(unaligned_shares(lines, links))
    return shares


def warn_of_cut_sources(cut: int, total: int, limit: int, reason: str) -> None:
    """Logs how many sources were cut to a limit of tokens; `reason` is `Searcher.source_limit`."""
    log.warning(f"{cut:,} of {total:,} sources: cut to {limit:,} tokens ({reason})")


def configured_utility(
    decoding: DecodingConfig, target_lang: str, options: EvaluationConfig | None = None
) -> Utility | None:
    """Returns the metric that `decoding.mbr` selects as a utility; None if it is not set.

    A utility that is not finite counts as the lowest, so the mean of several is never NaN.

    Raises:
        UserError: no such metric is registered, or it requires an option or a program that is missing.
    """
    if decoding.mbr is None:
        return None
    kind = metric_kinds([decoding.mbr], "decoding.mbr")[decoding.mbr]
    metric = kind(target_lang, options or EvaluationConfig())

    def utilities(hypotheses: Text, references: Text, sources: Text) -> list[float]:
        values = metric.sentence_utilities(hypotheses, references, sources)
        numbers = numbers_of(values, len(hypotheses), metric.key)
        return [number if math.isfinite(number) else -math.inf for number in numbers]

    return Utility(utilities, one_by_one=not metric.is_batched)
