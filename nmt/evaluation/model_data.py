"""The validation and test data of a model, read again by its options, or other data with its tags.

Functions import the packages that read data. These import numpy; evaluations of files start without it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nmt.config import DataConfig, EvalConfig, PairsConfig, SplitConfig, TaggedConfig, TrainConfig
from nmt.errors import UserError
from nmt.evaluation.analysis.bins import words_of
from nmt.runtime.streams import log, progress

if TYPE_CHECKING:
    from nmt.data.corpora.held_out import HeldOut


class Trained(Protocol):
    """A model or a run, whose data can be read again."""

    @property
    def folder(self) -> Path:
        """The folder."""

    @property
    def config(self) -> TrainConfig:
        """The options of the training."""

    @property
    def results(self) -> Mapping[str, Any]:
        """The content of `results.json`."""


def read_data(
    config: EvalConfig, bundle: Trained, symbols: Collection[str] | None = None
) -> dict[str, HeldOut]:
    """Returns the text of `config.split` of `config.data` or, without these, of the data of the model.

    `symbols` are the tags that the model knows; None: they do not matter.

    Returns:
        Name → text of each set; the name of a single set without a name is empty.

    Raises:
        UserError: there is no such split or set, or it is no longer available.
    """
    from nmt.data.corpora.held_out import is_given, sets_of  # imports numpy; see the top

    key, data = f"data.{config.split}", config.data or bundle.config.data
    split: SplitConfig = getattr(data, config.split)
    whose = f"data={data.name}" if config.data else f"the model in {bundle.folder}"
    if not is_given(split):
        other = "valid" if config.split == "test" else "test"
        raise UserError(f"{whose}: has no {key}. Try split={other}, or give source=FILE and references=FILE.")
    sets = sets_of(split, data, key, bundle.config.data)
    if config.set is not None:
        if config.set not in sets:
            known = f"Choose from {', '.join(split.sets)}" if split.sets else "It has one without a name"
            raise UserError(f"set={config.set}: {key} of {whose} has no such set. {known}.")
        sets = {config.set: sets[config.set]}
    facts = bundle.results.get("data", {}).get(config.split, {})
    recorded = facts.get("sets", {}) if split.sets else {"": facts}
    texts = {
        name: _read_set(config, bundle, whose, options, recorded.get(name, {}))
        for name, options in sets.items()
    }
    for name, text in texts.items():
        if symbols is not None and text.tag is not None and text.tag not in symbols:
            known = ", ".join(symbols) or "none at all"
            raise UserError(
                f"{sets[name][2]}.tag={text.tag}: the model in {bundle.folder} knows these tags: {known}"
            )
    return texts


def _read_set(
    config: EvalConfig,
    bundle: Trained,
    whose: str,
    options: tuple[TaggedConfig, DataConfig, str],
    recorded: Mapping[str, Any],
) -> HeldOut:
    """Reads a set; `options` are those of `sets_of`, and `recorded` are its facts in the model's results."""
    from nmt.data.corpora.held_out import read_held_out
    from nmt.data.corpora.recorded import NotRecorded, require_recorded

    split, data, key = options
    try:
        if config.data is None:
            require_recorded(*options, recorded)
        held_out = read_held_out(*options, bundle.config.data)
    except NotRecorded as error:
        raise UserError(
            f"{error} (a model could name any file of this machine). To read it, name it explicitly: "
            f"nmt-eval model_dir={config.model_dir} {_explicit_options(split, data, config.split)}"
        ) from error
    except UserError as error:
        if config.data:
            raise
        raise UserError(
            f"{error} (recorded with {whose}). If its data have moved, give source=FILE and references=FILE."
        ) from error
    changed = any(recorded.get(name, fact) != fact for name, fact in held_out.facts.items())
    if config.data is None and changed:
        log.warning(
            "%s: not the text of the run. Its files have changed, or the command was started in another "
            "folder. The score can't be compared with that of the run.",
            key,
        )
    return held_out


_COUNTED = 10_000  # pairs a block


def training_counts(bundle: Trained, sources: Iterable[str]) -> Counter[str] | None:
    """Counts the words of sources in the training sources of a model or run.

    Only files are read, and only those that the model has recorded.

    Returns:
        Word, as in `words_of` → number of occurrences. None: the training data are not at hand.
    """
    from nmt.data.corpora.corpus import given_options
    from nmt.data.corpora.recorded import require_recorded
    from nmt.data.corpora.sources import open_sources

    data = bundle.config.data
    recorded = bundle.results.get("data", {}).get("train", {})
    corpora: Mapping[str, PairsConfig] = data.train.corpora or {"": data.train}
    facts = recorded.get("corpora", {}) if data.train.corpora else {"": recorded}
    counts = Counter(dict.fromkeys((word for source in sources for word in words_of(source)), 0))
    try:
        for name, corpus in corpora.items():
            if not {"source", "path", "text"}.intersection(given_options(corpus)):
                return None  # reading it may download it
            key = f"data.train.corpora.{name}" if name else "data.train"
            require_recorded(corpus, data, key, facts.get(name, {}))
        for opened in open_sources(data):
            with progress(total=opened.corpus.num_pairs, unit="pairs", description="Counting words") as bar:
                for sources_of_block, _ in opened.corpus.blocks(_COUNTED):
                    counts.update(
                        word for line in sources_of_block for word in words_of(line) if word in counts
                    )
                    bar.update(len(sources_of_block))
    except UserError as error:
        log.info("The training text is not at hand, so the words of the sources are not counted: %s", error)
        return None
    return counts


def _explicit_options(split: TaggedConfig, data: DataConfig, name: str) -> str:
    if split.source is not None and split.target is not None and split.tag is None:
        return f"{_quoted_option('source', split.source)} {_quoted_option('references', split.target)}"
    keys = "source", "target", "path", "split", "tag"
    options = {f"data.{name}.{key}": getattr(split, key) for key in keys}
    options |= {f"data.hub.{key}": getattr(data.hub, key) for key in ("path", "name")}
    options |= {f"data.{key}": getattr(data, key) for key in ("source_lang", "target_lang")}
    return " ".join(
        ["data=local", *(_quoted_option(key, value) for key, value in options.items() if value is not None)]
    )


def _quoted_option(key: str, value: Any) -> str:
    text = f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)
    return shlex.quote(f"{key}={text}")
