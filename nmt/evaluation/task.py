"""One evaluation from its options to its report: what `nmt-eval` and `nmt.evaluate` do."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from nmt.config import DataConfig, EvalConfig, EvaluationConfig, SplitConfig, folders
from nmt.decoding.loading import Loaded, set_up
from nmt.errors import UserError
from nmt.evaluation.keys import TEXTS, check_keys, named
from nmt.evaluation.metrics import metrics_for
from nmt.evaluation.report import Report
from nmt.evaluation.scores import lacks_spaces, looks_tokenized, require_equal_counts, score, score_groups
from nmt.evaluation.significance import compare
from nmt.runtime import log, printable, progress

if TYPE_CHECKING:
    from nmt.bundle import Bundle


def evaluate(config: EvalConfig, texts: Mapping[str, Sequence[list[str]]] | None = None) -> Report:
    """Scores what `config` names.

    Args:
        config: the options.
        texts: lines in memory: key of `TEXTS` → one text, or several of `references`. The options name none
            of these.

    Raises:
        UserError: keys that don't go together, files that can't be read or written or are of unequal
            length, a model that can't be loaded or has no data of its own left.
    """
    texts = texts or {}
    check_keys(config, texts)
    task = _read_files(config, texts)
    bundles = _load(config, task)
    task.check()
    if bundles:
        task.texts["hypotheses"] = _translate(config, bundles, task)
    elif all(looks_tokenized(task.texts["hypotheses"], reference) for reference in task.references):
        log.warning(
            "%s looks tokenised (lines end in ' .'): scores are for raw text, detokenise it first",
            named("hypotheses", config.hypotheses),
        )
    if not task.target_lang and lacks_spaces(task.references[0]):
        log.warning(
            "%s look like Chinese, Japanese or Korean: without target_lang=zh, ja or ko BLEU takes whole "
            "sentences for words",
            named("references", config.references),
        )
    return task.report()


@dataclass
class Task:
    """What is to be scored.

    Attributes:
        title: the report's first line.
        target_lang: language of the references.
        options: of scoring.
        texts: key → lines, of all texts but the references.
        references: the lines of each text of references; one or several.
        sources: the lines of the source text without tags; none if it is not known.
        counts: how each text is called in messages → its number of lines.
        details: what the JSON tells beside the scores.
    """

    title: str = ""
    target_lang: str = ""
    options: EvaluationConfig = field(default_factory=EvaluationConfig)
    texts: dict[str, list[str]] = field(default_factory=dict)
    references: list[list[str]] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    def add(self, key: str, lines: list[str], name: str) -> None:
        """Adds a text; of several with the key `references` each is a translation of every sentence."""
        if key == "references":
            self.references.append(lines)
        else:
            self.texts[key] = lines
        self.counts[name] = len(lines)

    def check(self) -> None:
        """Finds what would make scoring fail, before hours go into translating."""
        require_equal_counts(self.counts)
        metrics_for(self.target_lang, self.options)

    def report(self) -> Report:
        """Scores the texts."""
        texts, metrics = self.texts, metrics_for(self.target_lang, self.options)
        hypotheses, references, sources = texts["hypotheses"], self.references, self.sources
        scores = score(hypotheses, references, metrics, sources=sources)
        groups, comparison = {}, None
        if "groups" in texts:
            groups = score_groups(hypotheses, references, texts["groups"], metrics, sources=sources)
        if "baseline" in texts:
            comparison = compare(hypotheses, texts["baseline"], references, metrics, sources=sources)
        return Report(self.title, scores, groups, comparison, self.details, hypotheses)


def _read_files(config: EvalConfig, in_memory: Mapping[str, Sequence[list[str]]]) -> Task:
    from nmt.data.corpora.text import expand, read_lines

    task = Task(target_lang=config.target_lang or "", options=config.evaluation)
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
            task.add(key, lines, named(key, value))
    task.sources = task.texts.get("source", [])
    task.title = f"{_file('hypotheses', config)} on {_file('references', config)}"
    return task


def _file(key: str, config: EvalConfig) -> str:
    """The files of an option, for titles; the key for lines in memory."""
    return named(key, getattr(config, key)).removeprefix(f"{key}=")


def _load(config: EvalConfig, task: Task) -> list[Bundle]:
    """Loads the models, if there are any, and adds to the task what only the (first) model knows."""
    paths = folders("model_dir", config.model_dir)
    if not paths:
        return []
    from nmt.bundle import load_bundles

    bundles = load_bundles(paths)
    bundle = bundles[0]
    own = bundle.config.data
    data = config.data or own
    if (data.source_lang, data.target_lang) not in languages_of(own):
        log.warning(
            "the model translates from %s to %s, these data are from %s to %s",
            *(own.source_lang, own.target_lang, data.source_lang, data.target_lang),
        )
    task.target_lang = config.target_lang or data.target_lang
    scored_on = _file("references", config)
    if not task.references:
        _read_data(config, bundle, data, task)
        scored_on = f"{data.name} ({config.split}), {data.source_lang}-{data.target_lang}"
    task.title = printable(f"{' + '.join(paths)} on {scored_on}")
    task.details["model_dir"] = config.model_dir
    return bundles


def languages_of(data: DataConfig) -> set[tuple[str, str]]:
    """What a model that was trained on these data translates: source and target language."""
    corpora = data.train.corpora.values()
    pairs = {(c.source_lang or data.source_lang, c.target_lang or data.target_lang) for c in corpora}
    return pairs | {(data.source_lang, data.target_lang)}


def _read_data(config: EvalConfig, bundle: Bundle, data: DataConfig, task: Task) -> None:
    from nmt.data.corpora.corpus import is_given, read_held_out
    from nmt.data.corpora.recorded import NotRecorded, require_recorded

    key = f"data.{config.split}"
    split: SplitConfig = getattr(data, config.split)
    whose = f"data={data.name}" if config.data else f"the model in {bundle.folder}"
    if not is_given(split):
        other = "valid" if config.split == "test" else "test"
        raise UserError(f"{whose} has no {key}: try split={other}, or give source=FILE and references=FILE")
    recorded = bundle.results.get("data", {}).get(config.split, {})
    try:
        if config.data is None:
            require_recorded(split, data, key, recorded)
        held_out = read_held_out(split, data, key)
    except NotRecorded as error:
        raise UserError(
            f"{error}, and a model may name any file of this machine; if you want it read, say so: "
            f"nmt-eval model_dir={config.model_dir} {_said_so(split, data, config.split)}"
        ) from error
    except UserError as error:
        if config.data:
            raise
        raise UserError(
            f"{error} (recorded with {whose}; if its data have moved, give source=FILE and references=FILE)"
        ) from error
    if config.data is None and _changed(held_out.facts, recorded):
        log.warning(
            "%s is not the text of the run: its files have changed, or the command was started in another "
            "folder; the score can't be compared with the run's",
            key,
        )
    if held_out.tag is not None and held_out.tag not in bundle.tokenizer.source_symbols:
        known = ", ".join(bundle.tokenizer.source_symbols) or "none at all"
        raise UserError(f"{key}.tag={held_out.tag}: the model in {bundle.folder} knows {known}")
    task.add("source", held_out.inputs, f"{key}'s source")
    task.sources = held_out.sources
    task.add("references", held_out.references, f"{key}'s target")
    if held_out.groups is not None and config.groups is None:
        task.add("groups", held_out.groups, f"{key}.groups")
    task.details |= {"split": config.split, "data": held_out.facts}


def _said_so(split: SplitConfig, data: DataConfig, name: str) -> str:
    """The options that name a split's data on the command line."""
    if split.source is not None and split.target is not None:
        return f"{_word('source', split.source)} {_word('references', split.target)}"
    given = {f"data.{name}.{key}": getattr(split, key) for key in ("path", "split")}
    given |= {f"data.hub.{key}": getattr(data.hub, key) for key in ("path", "name")}
    given |= {f"data.{key}": getattr(data, key) for key in ("source_lang", "target_lang")}
    return " ".join(["data=local", *(_word(key, value) for key, value in given.items() if value is not None)])


def _word(key: str, value: Any) -> str:
    text = f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)
    return shlex.quote(f"{key}={text}")


def _changed(facts: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    return any(recorded.get(name, fact) != fact for name, fact in facts.items())


def _translate(config: EvalConfig, bundles: Sequence[Bundle], task: Task) -> list[str]:
    loaded = Loaded(bundles, *set_up(config))
    translator = loaded.translator(config.decoding)
    sources = task.texts["source"]
    with progress(total=len(sources), unit="sentences", description="Translating") as bar:
        translations = translator.translate(sources, bar.update)
    if truncated := sum(translation.truncated > 0 for translation in translations):
        limit = max(translation.cut_to for translation in translations)
        log.warning(
            f"{truncated:,} of {len(sources):,} sources: cut to {limit:,} tokens (decoding.max_source_tokens)"
        )
    task.details |= {"decoding": asdict(config.decoding), "precision": loaded.precision.name}
    return [translation.hypotheses[0].text for translation in translations]
