"""Options of the data: where sentence pairs come from, how they are cleaned, segmented and batched."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from nmt.config.checks import MANY, PROCESSES, Section, above, auto_or, between, bounded, check, shortened
from nmt.config.schema import by_side, path_field
from nmt.config.storage import from_plain, to_plain
from nmt.config.synthetic import MonolingualConfig
from nmt.errors import UserError

_SET_NAME = re.compile(r"[^\W_][\w-]{0,59}")


class Segmentation(Enum):
    """The segmentation algorithm of SentencePiece."""

    unigram = "unigram"
    bpe = "bpe"


class Normalization(Enum):
    """SentencePiece's rules; `identity` leaves the text unchanged. `nfc` is for targets alone."""

    nmt_nfkc = "nmt_nfkc"
    nmt_nfkc_cf = "nmt_nfkc_cf"
    nfkc = "nfkc"
    nfkc_cf = "nfkc_cf"
    identity = "identity"
    nfc = "nfc"


class Extension(Enum):
    """Whether the vocabulary of another model gets new pieces, which are learnt from the new text."""

    auto = "auto"
    always = "always"
    never = "never"


class Markup(Enum):
    """What becomes of inline elements in TMX and XLIFF files."""

    drop = "drop"
    tags = "tags"


SIDE_NORMALIZATION = {"source": "nmt_nfkc", "target": "identity"}
"""The default of `data.tokenizer.normalization`."""


@dataclass
class HubConfig:
    """A data set of the Hugging Face hub or a local folder of the same layout, read by `datasets`."""

    path: str | None = path_field("folder", None)
    """Name on the hub, such as `wmt/wmt14`, or a local folder of the same layout."""
    name: str | None = None
    """Configuration of the data set, such as `de-en`."""
    revision: str | None = None
    """Commit, tag or branch. It is resolved to a commit when a run begins, and the run records and retains
    that commit. null: the default branch."""


@dataclass
class PairsConfig:
    """The source of pairs: exactly one of a hub split, text files of two sides, tables, or a test set."""

    split: str | None = None
    """Split of the hub data set in `data.hub`, such as `train`."""
    source: Any = path_field("file", None, several=True)
    """Text file of the source side, one sentence per line: plain, .gz, .xz or .zst. Several are a list or a
    quoted glob."""
    target: Any = path_field("file", None, several=True)
    """Text file or files of the target side, with the same lines as `source`."""
    path: Any = path_field("file", None, several=True)
    """File with both sides: TSV, CSV, JSON, JSONL, Parquet, TMX, XLIFF, PO, or a zip archive of such files or
    of two text files. Several are a list or a quoted glob."""
    sacrebleu: str | None = None
    """Test set of sacreBLEU, such as `wmt14/full`, instead of the other options."""


@dataclass
class TaggedConfig(PairsConfig):
    """The source of pairs, with a tag, and with labels of its lines."""

    groups: str | None = path_field("file", None)
    """Text file with one label per line. Each label is also scored separately."""
    names: list[str] = field(default_factory=list)
    """Names of the files of `source`, such as `[topic,general]`. Each file is also scored separately."""
    tag: str | None = None
    """Piece put before every source, such as `<2de>`. In validation and test: that of a training corpus."""


@dataclass
class NamedConfig(PairsConfig):
    """One of several sources of pairs, under a name of your choice."""

    source_key: str | None = None
    """Replaces `data.source_key` for these tables."""
    target_key: str | None = None
    """Replaces `data.target_key` for these tables."""
    source_lang: str | None = None
    """Replaces `data.source_lang` for these pairs: for their columns and cleaning rules."""
    target_lang: str | None = None
    """Replaces `data.target_lang` for these pairs: also for BLEU's tokeniser. In validation and test, null is
    the language of the training corpora with the same tag."""
    hub: HubConfig = field(default_factory=HubConfig)
    """The hub data set of these pairs, for `split`. Options that are not given are those of `data.hub`."""


@dataclass
class CorpusConfig(NamedConfig):
    """One of several training corpora."""

    weight: float | None = None
    """How often each pair is drawn per epoch. 2 draws every pair twice; 0.5 draws half of the pairs, and the
    other half in the next epoch. null: 1."""
    tag: str | None = None
    """Piece put before every source of the corpus, such as `<bt>`. To translate as in this corpus, begin a
    line with the tag."""
    cleaning: dict[str, Any] = field(default_factory=dict)
    """Cleaning options that replace those of `data.cleaning`, such as `{max_ratio: 3}`."""


@dataclass
class TrainSplitConfig(TaggedConfig):
    """The source of training pairs: one corpus, as for the other splits, or several named corpora."""

    corpora: dict[str, CorpusConfig] = field(default_factory=dict)
    """Several named corpora instead of one. Of equal pairs in different corpora, the pair of the earliest
    corpus is retained."""


@dataclass
class SetConfig(NamedConfig, TaggedConfig):
    """One of several sets of the validation or test."""


@dataclass
class SplitConfig(TaggedConfig):
    """The source of validation or test pairs: one set, or several named sets."""

    sets: dict[str, SetConfig] = field(default_factory=dict)
    """Several named sets instead of one. Each has its own scores, signatures and curve."""
    from_train: int | None = None
    """Number of pairs that `nmt-train` takes out of the training text for this split."""


@dataclass
class TokenizerConfig(Section, key="data.tokenizer."):
    """The SentencePiece tokenizer; with byte fallback, so that no character is unknown."""

    segmentation: Segmentation = Segmentation.unigram
    """Segmentation algorithm."""
    vocab_size: Any = auto_or(8000, between(300, 1_000_000), "a number of pieces, 300 or more")
    """Number of pieces, including special pieces and bytes. Lowered if the text has fewer; a warning says
    so if the number was given. `auto` chooses by the number of cleaned training pairs: 2000 below 1,000, 8000
    below 100,000, 16000 below 1,000,000, else 32000. It takes half of that per side without `joint`, and more
    for many characters."""
    joint: bool = True
    """One vocabulary for both sides. false: one per side."""
    character_coverage: float = bounded(1.0, between(0.98, 1))
    """Fraction of the characters that have a piece. The rest is encoded as bytes."""
    normalization: Any = by_side(**SIDE_NORMALIZATION)
    """Normalisation of each side before segmentation: nmt_nfkc, nmt_nfkc_cf, nfkc, nfkc_cf or identity. The
    model writes its target in the normalised form. identity retains the text of the lines, and
    `normalization.target=nfc` composes letters (Unicode NFC). One name in place of the two is for both sides,
    as in earlier versions; it also joins runs of spaces."""
    user_symbols: list[str] = field(default_factory=list)
    """Strings that are never segmented: each is one piece."""
    sample_pairs: int = bounded(250_000, between(1, MANY))
    """Largest number of pairs from which the pieces are learnt. A larger corpus is sampled, the same way each
    time. Fewer pairs are used if they exceed 100 MB of text."""
    path: str | None = path_field("folder", None)
    """Model folder, run folder or `hf://OWNER/NAME` whose pieces are reused, with their normalisation. The
    other options of the tokenizer have no effect then, except those of new pieces: `extend`,
    `character_coverage`, `user_symbols` and `sample_pairs`."""
    extend: Extension = Extension.auto
    """Whether the vocabulary of `path` or `start_from` gets new pieces after its own, whose ids stay.
    `always`: for all tags, `user_symbols` and characters that it lacks. `never`: a missing tag or symbol is
    an error, and missing characters are written as bytes. `auto`: with `start_from` as `always` if a tag or
    symbol is missing or more than 3% of the pieces of a side are bytes, else as `never`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.normalization
        if isinstance(given, Mapping):
            names = SIDE_NORMALIZATION | {str(side): _name_of(value) for side, value in given.items()}
            if unknown := names.keys() - SIDE_NORMALIZATION.keys():
                raise UserError(
                    f"data.tokenizer.normalization.{min(unknown)}: there is no such side. The sides are "
                    "source and target."
                )
            for side, name in names.items():
                _check_normalization(f"data.tokenizer.normalization.{side}", name, is_target=side == "target")
            self.normalization = names
        else:
            self.normalization = _name_of(given)
            _check_normalization("data.tokenizer.normalization", self.normalization, is_target=False)

    @property
    def rule_of_both(self) -> Normalization | None:
        """The one rule of both sides, in the form of earlier versions; None: each side has its own."""
        return None if isinstance(self.normalization, dict) else Normalization[self.normalization]

    def rule_of(self, side: str) -> Normalization:
        """Returns the rule of `source` or `target`."""
        return self.rule_of_both or Normalization[self.normalization[side]]


def _name_of(value: Any) -> str:
    return value.name if isinstance(value, Normalization) else "null" if value is None else str(value)


def _check_normalization(key: str, name: str, *, is_target: bool) -> None:
    allowed = [rule.name for rule in Normalization if is_target or rule is not Normalization.nfc]
    if name not in allowed:
        for_target = name == Normalization.nfc.name
        fix = " nfc is for data.tokenizer.normalization.target alone." if for_target else ""
        raise UserError(f"{key}={shortened(name)}: must be one of {', '.join(allowed)}.{fix}")


@dataclass
class CleaningConfig(Section, key="data.cleaning."):
    """Cleaning of the training pairs; the number of pairs that each rule drops is reported."""

    max_pieces: int = bounded(256, between(0, 1_000_000))
    """Largest number of pieces per side, EOS not counted. 0: no limit."""
    max_ratio: float = 9.0
    """Largest ratio of the longer side to the shorter side, in characters. 0: no limit."""
    drop_identical: bool = True
    """Drop pairs whose sides are the same text."""
    drop_duplicates: bool = True
    """Of equal pairs, retain the first."""
    drop_control: bool = True
    """Drop pairs with control characters other than tabs."""
    drop_leaked: bool = True
    """Drop pairs whose source or target occurs in validation or test. Case, spacing and compatible forms of
    characters (Unicode NFKC) are ignored in the comparison."""
    drop_near_duplicates: bool = False
    """Of pairs with equal letters, retain the first. Case and all characters that are not letters are
    ignored. Corpora with this option are compared with each other."""
    drop_unequal_numbers: bool = False
    """Drop pairs whose numbers differ. Grouping marks are ignored: 1,000 equals 1.000, and 1.5 million equals
    1,500,000. A number that may be a word on the other side is ignored: up to 12, or such a number followed
    by zeros. In Chinese and Japanese, 一九八五 equals 1985."""
    drop_unequal_addresses: bool = False
    """Drop pairs whose URLs or e-mail addresses differ. An address ends before letters that are not Latin,
    Greek or Cyrillic."""
    min_script: float = bounded(0.0, between(0, 1))
    """Smallest fraction of a side's letters that are in the script of its language. 0: no limit."""
    max_word: int = bounded(0, between(0, 1_000_000))
    """Largest number of characters per word, in languages that separate words by spaces. 0: no limit."""
    max_copied: float = bounded(0.0, between(0, 1))
    """Largest fraction of the source's words that also occur in the target, for sources of five words or
    more. 0: no limit."""
    langid_confidence: float = bounded(0.0, between(0, 1))
    """Drop pairs with a side that is in another language with at least this confidence; 0.95 is cautious. 0:
    off. Needs `pip install "nmt[langid]"`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_ratio != 0:
            check("data.cleaning.max_ratio", self.max_ratio, between(1, 1_000_000))


@dataclass
class SamplingConfig(Section, key="data.sampling."):
    """Subword regularisation of training pairs, resampled each epoch (Kudo 2018; Provilkov et al. 2020)."""

    alpha: float = bounded(0.0, between(0, 1))
    """Unigram: smoothing of the sampling distribution; 0.1 is strong, 0.5 is mild. BPE: fraction of merges
    dropped (BPE-dropout); 0.1 in the paper. 0: no sampling."""


@dataclass
class AugmentationConfig(Section, key="data.augmentation."):
    """Changes of training pairs, at random in each epoch, so that a model translates text as it is typed."""

    capitals: float = bounded(0.0, between(0, 1))
    """Fraction of the pairs in capitals, on both sides. Only for sources in a script with case."""
    titles: float = bounded(0.0, between(0, 1))
    """Fraction of the sources with a capital at each word; the target is a title of its language. Only for
    sources in a script with case."""
    unpunctuated: float = bounded(0.0, between(0, 1))
    """Fraction of the sources without the punctuation at their end. The target retains its own."""
    typos: float = bounded(0.0, between(0, 1))
    """Fraction of the sources with a typo, and up to one more for each twelve of their pieces, in words of at
    least four letters."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.capitals + self.titles > 1:
            raise UserError(
                f"data.augmentation.titles={self.titles}: exceeds 1 with capitals={self.capitals}. Lower one "
                "of them."
            )

    @property
    def is_on(self) -> bool:
        """Whether any pair may be changed."""
        return max(self.capitals, self.titles, self.unpunctuated, self.typos) > 0.0


@dataclass
class DataConfig(Section, key="data."):
    """Names, languages, batches and preparation of the data."""

    name: str = path_field("name", "???")
    """Name of the data in logs and reports."""
    source_lang: str = "???"
    """Language code of the source side, such as `en`."""
    target_lang: str = "???"
    """Language code of the target side. Its script selects BLEU's tokeniser."""
    hub: HubConfig = field(default_factory=HubConfig)
    train: TrainSplitConfig = field(default_factory=TrainSplitConfig)
    valid: SplitConfig = field(default_factory=SplitConfig)
    test: SplitConfig = field(default_factory=SplitConfig)
    monolingual: MonolingualConfig = field(default_factory=MonolingualConfig)
    source_key: str = "source"
    """Column or key of the source side in tables. `1`: the first column of a TSV or CSV file without a
    header."""
    target_key: str = "target"
    """Column or key of the target side in tables. `2`: the second column of a TSV or CSV file without a
    header. If one of the two numbers is 0, both count from 0, as in earlier versions."""
    max_malformed: float = bounded(0.0, between(0, 1))
    """Largest share of rows that may be malformed: not UTF-8, with another number of columns, or broken JSON,
    XML or PO. They are dropped, on both sides of two text files, and the first ones are reported. 0: a
    malformed row is an error."""
    markup: Markup = Markup.drop
    """Inline elements in TMX and XLIFF files, such as bold text. `drop`: only their text remains. `tags`:
    they are written as `<1>…</1>` and `<2/>`, which `placeholders` can replace."""
    temperature: float | None = bounded(None, between(1, MANY))
    """Replaces the weights of the corpora: a corpus is drawn in proportion to size**(1 / temperature). Above
    1, small corpora are drawn more often and large ones less often. The length of an epoch stays the same."""
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    concatenate: float = bounded(0.0, between(0, 1))
    """Fraction of the training pairs that are appended to another pair of their corpus, at random in each
    epoch, while the result has at most `cleaning.max_pieces` pieces. It teaches longer sentences."""
    reversed: float = bounded(0.0, between(0, 1))
    """Fraction of the training pairs that are learnt in the other direction, drawn again in each epoch. It
    helps if there are few pairs (Ding et al. 2021). Needs `tokenizer.joint`; pairs with a tag remain."""
    placeholders: bool = False
    """Replace URLs, e-mail addresses, tags and variables by placeholders in training, so that they are
    unchanged in translations. Placeholders are also inserted into a part of the other pairs, at random in
    each epoch."""
    max_tokens: Any = auto_or(4096, between(16, 10_000_000), "a number of tokens, 16 or more")
    """Largest number of target tokens per micro-batch, EOS counted. `auto`: as many as fit into memory, at
    most 25,000, measured when the run begins."""
    max_source_ratio: float = bounded(1.5, between(1, 1000))
    """Largest number of source tokens per micro-batch, as a multiple of `max_tokens`."""
    block_pairs: int = bounded(65_536, between(1, MANY))
    """Pairs per block. A block is the unit of sampling, packing and resuming within an epoch."""
    workers: int = bounded(0, between(0, PROCESSES))
    """Processes that prepare the data. 0: one per core."""
    loaders: Any = auto_or("auto", between(0, PROCESSES), "a number of processes")
    """Processes per GPU that prepare its batches in advance. 0: a thread prepares them. `auto`: as many as
    the GPUs need, if there are cores for them, and 0 for training on the CPU."""
    cache_dir: str | None = path_field("folder", None)
    """Folder of the prepared data. null: `nmt` in the user's cache folder."""
    cache_days: int = bounded(90, between(0, 100_000))
    """Prepared data unused for this many days are deleted when other data are prepared. 0: never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("source_lang", "target_lang"):
            if not getattr(self, key):
                raise UserError(f"data.{key}: is empty. Give a language code, such as data.{key}=en.")
        for name, corpus in self.train.corpora.items():
            self._check_corpus(f"data.train.corpora.{name}", corpus)
        for key, split in {"data.valid": self.valid, "data.test": self.test}.items():
            if split.from_train is not None:
                check(f"{key}.from_train", split.from_train, between(1, 1_000_000))
            for name in split.sets:
                if not _SET_NAME.fullmatch(name):
                    raise UserError(
                        f"{key}.sets.{name}: not a name of a set, which is part of names of files. It begins "
                        "with a letter or a digit, and has up to 60 letters, digits, _ and -. Rename it."
                    )

    def named(self) -> dict[str, NamedConfig]:
        """Returns all named training corpora and held-out sets by their full names."""
        parts: dict[str, NamedConfig] = {
            f"data.train.corpora.{name}": corpus for name, corpus in self.train.corpora.items()
        }
        for key, split in {"data.valid": self.valid, "data.test": self.test}.items():
            parts |= {f"{key}.sets.{name}": options for name, options in split.sets.items()}
        return parts

    def corpus_languages(self) -> list[tuple[str, str]]:
        """Returns the languages (source, target) of each training corpus."""
        corpora = self.train.corpora.values() or [CorpusConfig()]
        return [(one.source_lang or self.source_lang, one.target_lang or self.target_lang) for one in corpora]

    def language_pairs(self) -> list[tuple[str, str]]:
        """Returns the pairs (source, target) of languages of a model trained on these data, each once."""
        return list(dict.fromkeys([(self.source_lang, self.target_lang), *self.corpus_languages()]))

    def tag_langs(self) -> dict[str, str]:
        """Returns the target language of each tag whose training corpora have the same one."""
        by_tag = dict[str | None, set[str]]()
        for corpus in self.train.corpora.values():
            by_tag.setdefault(corpus.tag, set()).add(corpus.target_lang or self.target_lang)
        return {tag: langs.pop() for tag, langs in by_tag.items() if tag is not None and len(langs) == 1}

    def target_langs(self, inputs: Sequence[str], default: str | None = None) -> list[str]:
        """Returns the target language of each input of a model: that of the training corpora with its tag.

        Without such a tag, it is `default`, or else `target_lang`. A blank line is in the language of the
        first other line.
        """
        default, known = default or self.target_lang, self.tag_langs()
        words = (line.split(None, 1)[:1] for line in inputs)
        langs = [known.get(word[0], default) if word else None for word in words]
        first = next((lang for lang in langs if lang is not None), default)
        return [first if lang is None else lang for lang in langs]

    def cleaning_of(self, key: str, corpus: CorpusConfig) -> CleaningConfig:
        """Returns the cleaning options of one of several corpora; `key` is its full name, for messages.

        Raises:
            UserError: an option in the corpus's `cleaning` is unknown or has a wrong value.
        """
        known = [option.name for option in fields(CleaningConfig)]
        for name in corpus.cleaning:
            if name not in known:
                raise UserError(
                    f"{key}.cleaning.{name}: there is no such option. The options are {', '.join(known)}."
                )
        merged = {**to_plain(self.cleaning), **corpus.cleaning}
        try:
            return from_plain(CleaningConfig, merged, f"{key}.cleaning")
        except UserError as error:
            raise UserError(str(error).replace("data.cleaning.", f"{key}.cleaning.")) from error

    def _check_corpus(self, key: str, corpus: CorpusConfig) -> None:
        if corpus.weight is not None:
            if self.temperature is not None:
                raise UserError(f"{key}.weight: data.temperature is also given. Remove one of them.")
            check(f"{key}.weight", corpus.weight, above(0, MANY))
        self.cleaning_of(key, corpus)
