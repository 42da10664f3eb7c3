"""Options of the data stage: where sentence pairs come from, how they are cleaned, cut up and batched."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from nmt.config.checks import MANY, PROCESSES, above, between, check, shortened
from nmt.config.paths import path_field
from nmt.config.storage import from_plain, to_plain
from nmt.errors import UserError


class Segmentation(Enum):
    """How SentencePiece finds its pieces."""

    unigram = "unigram"
    bpe = "bpe"


class Normalization(Enum):
    """SentencePiece's normalisation rules; `identity` keeps the text as it is."""

    nmt_nfkc = "nmt_nfkc"
    nmt_nfkc_cf = "nmt_nfkc_cf"
    nfkc = "nfkc"
    nfkc_cf = "nfkc_cf"
    identity = "identity"


@dataclass
class HubConfig:
    """A data set of the Hugging Face hub (or a local folder of the same layout), read through `datasets`."""

    path: str | None = path_field("folder", None)
    """Name on the hub such as `wmt/wmt14`, or a local folder of the same layout."""
    name: str | None = None
    """Configuration of the data set, such as `de-en`."""
    revision: str | None = None
    """Commit, tag or branch; resolved to a commit when a run begins, recorded and kept."""


@dataclass
class PairsConfig:
    """Where pairs come from: exactly one of a hub split, two text files, one table, or a test set."""

    split: str | None = None
    """Split of the hub data set named in `data.hub`, such as `train`."""
    source: Any = path_field("file", None, several=True)
    """Text file or files (plain, .gz, .xz, .zst; a list or a quoted glob for several), a sentence a line."""
    target: Any = path_field("file", None, several=True)
    """The other side of `source`, line for line."""
    path: Any = path_field("file", None, several=True)
    """TSV, JSONL or Parquet file or files (a list or a quoted glob for several)."""
    sacrebleu: str | None = None
    """A test set of sacreBLEU by name and nothing else, such as `wmt14/full`."""


@dataclass
class SplitConfig(PairsConfig):
    """Where one split comes from: exactly one of a hub split, two text files, one table, or a test set."""

    groups: str | None = path_field("file", None)
    """Text file with one label a line; scores are reported for each label beside the whole."""
    tag: str | None = None
    """A piece put before every source, such as `<2de>`: in validation and test that of a training corpus."""


@dataclass
class CorpusConfig(PairsConfig):
    """One of several training corpora, under a name of your own."""

    source_key: str | None = None
    """As `data.source_key`, where this corpus's tables differ."""
    target_key: str | None = None
    """As `data.target_key`, where this corpus's tables differ."""
    source_lang: str | None = None
    """As `data.source_lang`, where this corpus is in another language; its columns and rules follow it."""
    target_lang: str | None = None
    """As `data.target_lang`, in the same way."""
    weight: float | None = None
    """How often its pairs are drawn an epoch: 2 draws every pair twice, 0.5 half of them, another half each
    epoch; default 1."""
    tag: str | None = None
    """A piece put before every source of the corpus, such as `<bt>`; a line that begins with it is
    translated accordingly."""
    cleaning: dict[str, Any] = field(default_factory=dict)
    """What differs from `data.cleaning`, such as `max_ratio: 3`."""
    hub: HubConfig = field(default_factory=HubConfig)
    """Its own hub data set for `split`; what is not given here is as in `data.hub`."""


@dataclass
class TrainSplitConfig(SplitConfig):
    """Where training pairs come from: one corpus as for the other splits, or several by name."""

    corpora: dict[str, CorpusConfig] = field(default_factory=dict)
    """Corpora by name, instead of the one; of equal pairs the one in the earlier corpus stays."""


@dataclass
class TokenizerConfig:
    """SentencePiece, always with byte fallback: nothing is ever unknown."""

    segmentation: Segmentation = Segmentation.unigram
    """`unigram` or `bpe`."""
    # A number or `auto`, as `data.max_tokens`.
    vocab_size: Any = 8000
    """Pieces, special ones and bytes included; lowered, with a warning, where the text allows fewer. `auto`:
    by the number of cleaned training pairs, 2000 below 10,000, 4000 below 25,000, 8000 below 100,000, 16000
    below 1,000,000 and 32000 from there; half of that a side if not `joint`; more for many characters."""
    joint: bool = True
    """One vocabulary for both sides, or one a side."""
    character_coverage: float = 1.0
    """Share of the characters that get pieces of their own; the rest is spelt in bytes."""
    normalization: Normalization = Normalization.nmt_nfkc
    """What is done to text before it is cut."""
    user_symbols: list[str] = field(default_factory=list)
    """Strings that are always one piece."""
    sample_pairs: int = 250_000
    """Pairs the pieces are learnt from: the whole of a smaller corpus, a fixed sample of a larger one; fewer
    than this if they come to more than 100 MB of text."""
    path: str | None = path_field("folder", None)
    """A trained model, or the run that made it, whose pieces are taken as they are instead of learning some;
    the other options of the tokenizer are not looked at then."""

    def __post_init__(self) -> None:
        """Checks the values."""
        if type(self.vocab_size) is int:
            check("data.tokenizer.vocab_size", self.vocab_size, between(300, 1_000_000))
        elif self.vocab_size != "auto":
            raise UserError(
                f"data.tokenizer.vocab_size={self.vocab_size}: must be auto or a number of pieces, "
                "300 or more"
            )
        check("data.tokenizer.character_coverage", self.character_coverage, between(0.98, 1))
        check("data.tokenizer.sample_pairs", self.sample_pairs, between(1, MANY))


@dataclass
class CleaningConfig:
    """What is dropped from the training pairs; every rule counts what it dropped."""

    max_pieces: int = 256
    """A longer side (in pieces, EOS not counted) drops the pair; 0 keeps all."""
    max_ratio: float = 9.0
    """Longer side over shorter side, in characters; 0 keeps all."""
    drop_identical: bool = True
    """Drop pairs whose sides are the same text."""
    drop_duplicates: bool = True
    """Keep the first of several equal pairs."""
    drop_control: bool = True
    """Drop pairs with control characters other than a tab."""
    drop_leaked: bool = True
    """Drop pairs whose source or target stands in validation or test, the same but for case, spacing and
    what Unicode holds to be one character in several forms (NFKC)."""
    drop_near_duplicates: bool = False
    """Keep the first of several pairs that are equal but for case and all that is no letter, the same in all
    corpora with this option."""
    drop_unequal_numbers: bool = False
    """Drop pairs whose numbers disagree. Marks of grouping don't count (1,000 is 1.000, and 1.5 million is
    1,500,000), nor does what may be a word on the other side: up to 12, or with zeros behind that."""
    drop_unequal_addresses: bool = False
    """Drop pairs whose URLs or e-mail addresses disagree. One ends before letters that are neither Latin nor
    Greek nor Cyrillic."""
    min_script: float = 0.0
    """Share of a side's letters that must be in the script of its language; 0 keeps all."""
    max_word: int = 0
    """A longer word (in characters) drops the pair, where words have spaces between them; 0 keeps all."""
    max_copied: float = 0.0
    """Share of the source's words, five or more, that may stand in the target; 0 keeps all."""
    langid_confidence: float = 0.0
    """Confidence (0.95 is careful) from which a side in another language drops the pair; 0 keeps all.
    Needs `pip install "nmt[langid]"`."""

    def __post_init__(self) -> None:
        """Checks the values."""
        check("data.cleaning.max_pieces", self.max_pieces, between(0, 1_000_000))
        if self.max_ratio != 0:
            check("data.cleaning.max_ratio", self.max_ratio, between(1, 1_000_000))
        check("data.cleaning.max_word", self.max_word, between(0, 1_000_000))
        for key in ("min_script", "max_copied", "langid_confidence"):
            check(f"data.cleaning.{key}", getattr(self, key), between(0, 1))


@dataclass
class SamplingConfig:
    """Subword regularisation of the training pairs, fresh each epoch (Kudo 2018; Provilkov et al. 2020)."""

    alpha: float = 0.0
    """0: none. Unigram: the smoothing of the sampling distribution (0.1 is strong, 0.5 mild);
    BPE: the share of merges dropped (BPE-dropout, 0.1 in the paper)."""

    def __post_init__(self) -> None:
        """Checks the values."""
        check("data.sampling.alpha", self.alpha, between(0, 1))


@dataclass
class DataConfig:
    """The data stage as a whole."""

    name: str = path_field("name", "???")
    """What the data are called in logs and reports."""
    source_lang: str = "???"
    """Language code of the source side, such as `en`."""
    target_lang: str = "???"
    """Language code of the target side; BLEU's tokeniser follows it."""
    hub: HubConfig = field(default_factory=HubConfig)
    train: TrainSplitConfig = field(default_factory=TrainSplitConfig)
    valid: SplitConfig = field(default_factory=SplitConfig)
    test: SplitConfig = field(default_factory=SplitConfig)
    source_key: str = "source"
    """Column or key of the source side in tables; `0` for the first column of a TSV without a header."""
    target_key: str = "target"
    """Column or key of the target side; `1` for the second column of a TSV without a header."""
    temperature: float | None = None
    """Instead of the corpora's weights: above 1 the small ones are drawn more often and the large ones less,
    in proportion to size**(1 / temperature); an epoch keeps its length."""
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    # A number or `auto`, as `loaders`: OmegaConf makes no union in a section that may be left out, and
    # `nmt-eval data=NAME` has one.
    max_tokens: Any = 4096
    """Target tokens a micro-batch holds at most, EOS counted; `auto`: as many as fit into memory, at most
    25,000, found when the run begins."""
    max_source_ratio: float = 1.5
    """Source tokens a micro-batch holds at most, as a multiple of `max_tokens`."""
    block_pairs: int = 65_536
    """Pairs of a block, the unit in which an epoch is sampled, packed and resumed."""
    workers: int = 0
    """Processes that prepare the data; 0: one a core."""
    loaders: Any = "auto"
    """Processes that make the batches of one GPU, ahead of their use; 0: none, a thread does it. `auto`: as
    many as keep up with the GPUs, where there are cores for them; none where training is on the CPU."""
    cache_dir: str | None = path_field("folder", None)
    """Where prepared data are kept; default: `nmt` in the user's cache folder."""
    cache_days: int = 90
    """Prepared data that were not used for so many days are deleted when others are prepared; 0 keeps all."""

    def __post_init__(self) -> None:
        """Checks the values."""
        if type(self.max_tokens) is int:
            check("data.max_tokens", self.max_tokens, between(16, 10_000_000))
        elif self.max_tokens != "auto":
            raise UserError(
                f"data.max_tokens={shortened(self.max_tokens)}: "
                f"must be auto or a number of tokens, 16 or more"
            )
        check("data.max_source_ratio", self.max_source_ratio, between(1, 1000))
        check("data.block_pairs", self.block_pairs, between(1, MANY))
        check("data.workers", self.workers, between(0, PROCESSES))
        if type(self.loaders) is int:
            check("data.loaders", self.loaders, between(0, PROCESSES))
        elif self.loaders != "auto":
            raise UserError(f"data.loaders={shortened(self.loaders)}: must be auto or a number of processes")
        check("data.cache_days", self.cache_days, between(0, 100_000))
        for key in ("source_lang", "target_lang"):
            if not getattr(self, key):
                raise UserError(f"data.{key} is empty: give a language code such as data.{key}=en")
        if self.temperature is not None:
            check("data.temperature", self.temperature, between(1, MANY))
        for name, corpus in self.train.corpora.items():
            self._check_corpus(f"data.train.corpora.{name}", corpus)

    def cleaning_of(self, key: str, corpus: CorpusConfig) -> CleaningConfig:
        """How one of several corpora is cleaned; `key` is its full name, for messages.

        Raises:
            UserError: an option of its own is unknown or has a wrong value.
        """
        known = [option.name for option in fields(CleaningConfig)]
        for name in corpus.cleaning:
            if name not in known:
                raise UserError(f"{key}.cleaning.{name}: there is no such option, only {', '.join(known)}")
        merged = {**to_plain(self.cleaning), **corpus.cleaning}
        try:
            return from_plain(CleaningConfig, merged, f"{key}.cleaning")
        except UserError as error:
            raise UserError(str(error).replace("data.cleaning.", f"{key}.cleaning.")) from error

    def _check_corpus(self, key: str, corpus: CorpusConfig) -> None:
        if corpus.weight is not None:
            if self.temperature is not None:
                raise UserError(f"{key}.weight and data.temperature are both given: drop one of them")
            check(f"{key}.weight", corpus.weight, above(0, MANY))
        self.cleaning_of(key, corpus)
