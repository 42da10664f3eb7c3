"""The programs of scripts/race.py: how each is installed, prepares, trains, and translates with a checkpoint.

Each peer has the recipe that its authors publish for their smallest corpus. `recipe` names its source and all
that is different here; docs/recipes.md has the same text.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

MANY = 1_000_000  # updates or epochs: the clock ends the training
PIECES = 10_000  # of the vocabularies for both languages, as in fairseq's recipe


@dataclass(frozen=True)
class Task:
    """The texts, the minutes and cores of each program, and the updates between checkpoints of a peer."""

    source: Path
    target: Path
    valid_source: Path
    valid_target: Path
    langs: tuple[str, str]
    minutes: float
    cores: int
    every: int

    def texts(self) -> dict[str, Path]:
        """Returns the texts under names such as `train.en`, `train.de`, `valid.en` and `valid.de`."""
        names = [f"{split}.{lang}" for split in ("train", "valid") for lang in self.langs]
        paths = (self.source, self.target, self.valid_source, self.valid_target)
        return dict(zip(names, paths, strict=True))


class Program(ABC):
    """A program in a Python environment, and its folder in the race.

    Attributes:
        install: the command that installs it.
        recipe: its recipe, the source of the recipe, and all that is different here.
        checkpoints: patterns of its checkpoints, files or folders, in its folder.
        environment: the program whose environment it has; empty: its own.
    """

    install: ClassVar[str]
    recipe: ClassVar[str]
    checkpoints: ClassVar[Sequence[str]]
    environment: ClassVar[str] = ""

    def __init__(self, task: Task, python: Path, work: Path) -> None:
        """Stores the task, the Python of the environment and the folder."""
        self.task, self.python, self.work = task, python, work

    @abstractmethod
    def commands(self) -> list[list[str]]:
        """Returns the commands from raw text to the end of the training; may write files into the folder."""

    @abstractmethod
    def translation(self, checkpoint: Path, output: Path) -> list[str]:
        """Returns the command that translates the validation text, which is also its standard input."""

    def hypotheses(self, output: Path) -> list[str]:
        """Returns the translations in the output of `translation`."""
        return lines_of(output)

    def script(self, name: str, *words: object) -> list[str]:
        """Returns a command of the environment."""
        return [str(self.python.parent / name), *map(str, words)]

    def sentencepiece(self, **options: object) -> list[str]:
        """Returns the command that learns `pieces.model` and `.vocab`, for both languages."""
        given = {
            "input": f"{self.task.source},{self.task.target}", "model_prefix": str(self.work / "pieces"),
            "vocab_size": PIECES, "hard_vocab_limit": False, "character_coverage": 1.0, **options,
        }  # fmt: skip
        code = f"import sentencepiece; sentencepiece.SentencePieceTrainer.train(**{given!r})"
        return self.script("python", "-c", code)


class Nmt(Program):
    """This project, without one option but the time."""

    install = "pip install -e .[plots]"
    recipe = "`recipe=auto`, the default. Different: all checkpoints are retained."
    checkpoints = ("run/checkpoints/update-*", "run/model")  # the model may be a mean of checkpoints

    def commands(self) -> list[list[str]]:
        """One command does all; it ends by itself, a little before the clock."""
        task = self.task
        return [
            self.script(
                "nmt-train", "data=local", f"training.budget={0.97 * task.minutes:.3f}m",
                f"data.source_lang={task.langs[0]}", f"data.target_lang={task.langs[1]}",
                f"data.train.source={task.source}", f"data.train.target={task.target}",
                f"data.valid.source={task.valid_source}", f"data.valid.target={task.valid_target}",
                f"training.keep_checkpoints={MANY}", f"run_dir={self.work / 'run'}",
            )
        ]  # fmt: skip

    def translation(self, checkpoint: Path, output: Path) -> list[str]:
        """Translates as `nmt-translate` does by default."""
        files = (f"input={self.task.valid_source}", f"output={output}")
        return self.script("nmt-translate", f"model_dir={checkpoint}", *files)


class Fairseq(Program):
    """fairseq 0.12. The package of that name, 0.12.2, can't be imported in Python 3.11."""

    install = "pip install fairseq-fixed==0.12.3.1 sentencepiece"
    recipe = (
        "IWSLT 2014 of examples/translation/README.md. Different: BPE of SentencePiece on raw text, not of "
        "lower-cased Moses tokens; checkpoints and validations after `--every` updates, not an epoch."
    )
    checkpoints = ("checkpoints/checkpoint[0-9]*.pt", "checkpoints/checkpoint_[0-9]*.pt")
    model: ClassVar[Sequence[str]] = (
        "--arch", "transformer_iwslt_de_en", "--share-decoder-input-output-embed",
        "--lr", "5e-4", "--warmup-updates", "4000", "--weight-decay", "0.0001",
    )  # fmt: skip
    dictionary: ClassVar[Sequence[str]] = ()
    checkpoints_every: ClassVar[int] = 1  # times `every` updates

    def commands(self) -> list[list[str]]:
        """Pieces, binary data, training."""
        task, work = self.task, self.work
        pairs = [(str(path), str(work / name)) for name, path in task.texts().items()]
        encode = (
            "import sentencepiece\n"
            f"pieces = sentencepiece.SentencePieceProcessor(model_file={str(work / 'pieces.model')!r})\n"
            f"for path, encoded in {pairs!r}:\n"
            "    with open(path, newline='\\n') as text, open(encoded, 'w') as out:\n"
            "        for line in text: print(*pieces.encode(line.rstrip('\\n'), out_type=str), file=out)\n"
        )
        # An update at the end of an epoch has no checkpoint of its number. So a corpus of few updates, 4,096
        # pieces of 4 bytes each, has its checkpoints after epochs.
        every = self.checkpoints_every * task.every
        epochs = round(every * 4096 * 4 / max(1, task.target.stat().st_size))
        return [
            self.sentencepiece(model_type="bpe"),
            self.script("python", "-c", encode),
            self.script(
                "fairseq-preprocess", *self._langs(), "--destdir", work / "data", "--workers", task.cores,
                "--trainpref", work / "train", "--validpref", work / "valid", *self.dictionary,
            ),
            self.script(
                "fairseq-train", work / "data", *self._langs(), "--cpu", "--save-dir", work / "checkpoints",
                *self.model, "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "0.0",
                "--lr-scheduler", "inverse_sqrt", "--dropout", "0.3", "--max-tokens", "4096",
                "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1",
                "--save-interval-updates", 0 if epochs else every,
                "--save-interval", epochs or MANY, "--validate-interval", epochs or MANY,
                "--no-last-checkpoints", "--no-save-optimizer-state",
            ),
        ]  # fmt: skip

    def translation(self, checkpoint: Path, output: Path) -> list[str]:
        """Translates with the beam of the recipe; the translations are among other lines."""
        return [
            "env", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1",  # its checkpoints have pickled options
            *self.script(
                "fairseq-generate", self.work / "data", *self._langs(), "--cpu", "--gen-subset", "valid",
                "--path", checkpoint, "--results-path", output, "--batch-size", "128", "--beam", "5",
                "--remove-bpe", "sentencepiece",
                "--required-batch-size-multiple", "1",  # 8, the default, omits the last sentences
            ),
        ]  # fmt: skip

    def hypotheses(self, output: Path) -> list[str]:
        """The lines `D-number TAB score TAB text`, by number."""
        lines = lines_of(output / "generate-valid.txt")
        found = (re.fullmatch(r"D-(\d+)\t[^\t]*\t(.*)", line) for line in lines)
        return [text for _, text in sorted((int(match[1]), match[2]) for match in found if match)]

    def _langs(self) -> list[str]:
        return ["-s", self.task.langs[0], "-t", self.task.langs[1]]


class FairseqTiny(Fairseq):
    """fairseq 0.12 with the model of Wu et al. 2021 for Multi30k."""

    recipe = (
        "README-baseline.md of Revisit-MMT (Wu et al. 2021): 4 + 4 layers of width 128. Different: BPE of "
        "SentencePiece on raw text, not of lower-cased Moses tokens; checkpoints and validations after 10 "
        "times `--every` updates, not an epoch; no mean of checkpoints."
    )
    environment = "fairseq"
    model = (
        "--arch", "transformer", "--share-all-embeddings", "--lr", "0.005", "--warmup-updates", "2000",
        "--encoder-layers", "4", "--encoder-embed-dim", "128", "--encoder-ffn-embed-dim", "256",
        "--decoder-layers", "4", "--decoder-embed-dim", "128", "--decoder-ffn-embed-dim", "256",
        "--encoder-attention-heads", "4", "--decoder-attention-heads", "4",
    )  # fmt: skip
    dictionary = ("--joined-dictionary",)
    checkpoints_every = 10


_JOEYNMT = """
import runpy, torch, joeynmt.config
joeynmt.config.BaseConfig.n_best = 1
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
class Plateau(plateau):
    def __init__(self, *arguments, verbose=False, **options):
        super().__init__(*arguments, **options)
torch.optim.lr_scheduler.ReduceLROnPlateau = Plateau
runpy.run_module("joeynmt", run_name="__main__")
"""
"""JoeyNMT 2.3.0 without two of its faults: `translate` reads an option that does not exist, and the schedule
of its recipe sets one that PyTorch 2.13 refuses."""


class JoeyNmt(Program):
    """JoeyNMT 2.3 with its Transformer for IWSLT 2014."""

    install = "pip install joeynmt==2.3.0 importlib_metadata 'sentencepiece<0.2.2'"
    recipe = (
        "configs/transformer_iwslt14_deen_sp.yaml of JoeyNMT 1.5. Different: raw text with case, not lower "
        "case; 10,000 pieces, not 32,000; updates of 4,096 tokens, not 8,192; fp32, not fp16; a checkpoint "
        "and a validation after 4 times `--every` updates, not 1,000; a patience of as many updates, 5,000; "
        "no minimum of the learning rate."
    )
    checkpoints = ("model/[0-9]*.ckpt",)  # `latest` and `best` are links

    def commands(self) -> list[list[str]]:
        """Pieces, the list of pieces, training."""
        for name, path in self.task.texts().items():  # the program wants one name for both languages
            (self.work / name).symlink_to(path)
        config = self._config(self.work / "config.yaml")
        pieces = (
            f"lines = open({str(self.work / 'pieces.vocab')!r}).read().split('\\n')\n"
            f"with open({str(self.work / 'vocab.txt')!r}, 'w') as out:\n"
            "    for line in lines[:-1]: print(line.split('\\t')[0], file=out)\n"
        )
        return [
            self.sentencepiece(unk_id=0, pad_id=1, bos_id=2, eos_id=3, pad_piece="<pad>"),
            self.script("python", "-c", pieces),
            self.script("python", "-c", _JOEYNMT, "train", config, "--skip-test"),
        ]

    def translation(self, checkpoint: Path, output: Path) -> list[str]:
        """Translates its standard input; an option names the checkpoint."""
        config = self._config(output.with_suffix(".yaml"), load_model=str(checkpoint))
        return self.script("python", "-c", _JOEYNMT, "translate", config, "--output-path", output)

    def _config(self, path: Path, **testing: object) -> Path:
        every, work = 4 * self.task.every, self.work
        sides = [
            {
                "lang": lang, "level": "bpe", "lowercase": False, "max_length": 62, "voc_min_freq": 1,
                "voc_file": str(work / "vocab.txt"), "tokenizer_type": "sentencepiece",
                "tokenizer_cfg": {"model_file": str(work / "pieces.model"), "model_type": "unigram"},
            }
            for lang in self.task.langs
        ]  # fmt: skip
        layers = {
            "type": "transformer", "num_layers": 6, "num_heads": 4, "hidden_size": 256, "ff_size": 1024,
            "embeddings": {"embedding_dim": 256, "scale": True, "dropout": 0.0}, "dropout": 0.3,
            "layer_norm": "pre",  # as in JoeyNMT 1, without an option
        }  # fmt: skip
        options = {
            "name": "race", "joeynmt_version": "2.3.0", "model_dir": str(work / "model"), "use_cuda": False,
            "fp16": False, "random_seed": 42,
            "data": {
                "train": str(work / "train"), "dev": str(work / "valid"), "dataset_type": "plain",
                "src": sides[0], "trg": sides[1],
            },
            "testing": {
                "beam_size": 5, "beam_alpha": 1.0, "batch_size": 1024, "batch_type": "token", **testing,
                "max_output_length": 100, "eval_metrics": ["bleu"], "sacrebleu_cfg": {"tokenize": "13a"},
            },
            "training": {
                "optimizer": "adam", "normalization": "tokens", "adam_betas": [0.9, 0.999],
                "scheduling": "plateau", "patience": max(1, 5000 // every), "decrease_factor": 0.7,
                "loss": "crossentropy", "label_smoothing": 0.1, "learning_rate": 3e-4,
                "learning_rate_min": 0.0, "weight_decay": 0.0, "batch_size": 4096, "batch_type": "token",
                "early_stopping_metric": "bleu", "epochs": MANY, "validation_freq": every,
                "logging_freq": every, "shuffle": True, "keep_best_ckpts": -1,
            },
            "model": {
                "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "init_gain": 1.0,
                "embed_init_gain": 1.0, "bias_initializer": "zeros",
                "tied_embeddings": True, "tied_softmax": True, "encoder": layers, "decoder": layers,
            },
        }  # fmt: skip
        path.write_text(json.dumps(options), "utf-8")  # JSON is YAML
        return path


class Eole(Program):
    """Eole with its WMT 2017 recipe, in the size of the paper's base model."""

    install = "pip install eole==0.6.4 aiohttp"
    recipe = (
        "recipes/wmt17/wmt17_ende_spm.yaml, as Eole has none for a small corpus. Different: the base size, "
        "not big; 1 batch an update, not 10; 10,000 pieces, not 36,000, the rare ones included; fp32, not "
        "bf16; a checkpoint and a validation after `--every` updates, not 5,000, without BLEU."
    )
    checkpoints = ("model/step_*",)

    def commands(self) -> list[list[str]]:
        """Pieces, their list, training."""
        config, vocabulary = self.work / "config.yaml", str(self.work / "vocab.txt")
        task, model = self.task, str(self.work / "pieces.model")
        options = {
            "save_data": str(self.work / "data"), "overwrite": True, "seed": 1234, "report_every": 100,
            "src_vocab": vocabulary, "tgt_vocab": vocabulary, "share_vocab": True,
            "src_vocab_size": PIECES, "tgt_vocab_size": PIECES, "vocab_size_multiple": 8,
            "data": {
                "corpus_1": {"path_src": str(task.source), "path_tgt": str(task.target)},
                "valid": {"path_src": str(task.valid_source), "path_tgt": str(task.valid_target)},
            },
            "transforms": ["sentencepiece", "filtertoolong"],
            "transforms_configs": {
                "sentencepiece": {"src_subword_model": model, "tgt_subword_model": model},
                "filtertoolong": {"src_seq_length": 512, "tgt_seq_length": 512},
            },
            "training": {
                "model_path": str(self.work / "model"), "keep_checkpoint": -1, "train_steps": MANY,
                "save_checkpoint_steps": task.every, "valid_steps": task.every,
                "world_size": 1, "gpu_ranks": [], "num_workers": 0, "bucket_size": 262144,
                "batch_type": "tokens", "batch_size": 5000, "valid_batch_size": 4096,
                "batch_size_multiple": 8, "accum_count": [1], "accum_steps": [0], "compute_dtype": "fp32",
                "optim": "adamw", "learning_rate": 2, "warmup_steps": 4000, "decay_method": "noam",
                "adam_beta2": 0.998, "max_grad_norm": 0, "label_smoothing": 0.1, "average_decay": 0,
                "dropout_steps": [0], "dropout": [0.1], "attention_dropout": [0.1],
                "param_init_method": "xavier_uniform", "normalization": "tokens",
            },
            "model": {
                "architecture": "transformer", "hidden_size": 512, "layers": 6, "heads": 8,
                "transformer_ff": 2048, "share_decoder_embeddings": True, "share_embeddings": True,
                "embeddings": {"word_vec_size": 512, "position_encoding_type": "SinusoidalInterleaved"},
            },
        }  # fmt: skip
        config.write_text(json.dumps(options), "utf-8")
        return [
            self.sentencepiece(model_type="bpe"),
            self.script("eole", "build_vocab", "--config", config, "--n_sample", -1),
            self.script("eole", "train", "--config", config),
        ]

    def translation(self, checkpoint: Path, output: Path) -> list[str]:
        """Translates with the transforms that are stored with the model."""
        return self.script(
            "eole", "predict", "--model_path", checkpoint, "--src", self.task.valid_source,
            "--output", output, "--beam_size", "5", "--batch_type", "tokens", "--batch_size", "4096",
        )  # fmt: skip


class Marian(Program):
    """Hugging Face's Marian from scratch, trained by `Seq2SeqTrainer` in scripts/race_marian.py."""

    install = "pip install transformers==5.24.0 sentencepiece accelerate"
    recipe = (
        "The numbers of fairseq's, as transformers has no recipe for training from scratch. Different: one "
        "vocabulary and embedding for both languages; 160 pairs an update, not 4,096 tokens."
    )
    checkpoints = ("checkpoint-*",)

    def commands(self) -> list[list[str]]:
        """Pieces; one script does the rest."""
        train = self._trainer("train", self.work, self.task.every, *self.task.texts().values())
        return [self.sentencepiece(model_type="bpe"), train]

    def translation(self, checkpoint: Path, output: Path) -> list[str]:
        """Translates with the beam of the recipe."""
        return self._trainer("translate", self.work, checkpoint, self.task.valid_source, output)

    def _trainer(self, *words: object) -> list[str]:
        return self.script("python", Path(__file__).with_name("race_marian.py"), *words)


def lines_of(path: Path) -> list[str]:
    """Returns the lines of a text; a line ends at a line feed and nowhere else."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


PROGRAMS: Mapping[str, type[Program]] = {
    "nmt": Nmt, "fairseq": Fairseq, "fairseq-tiny": FairseqTiny, "joeynmt": JoeyNmt, "eole": Eole,
    "marian": Marian,
}  # fmt: skip
"""Name → program; the name is also that of its environment, unless it has that of another program."""
