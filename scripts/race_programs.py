"""The programs of scripts/race.py: how each is installed, prepares, trains, and translates with a checkpoint.

Each peer has the recipe that its authors publish for their smallest corpus. docs/recipes.md names what is
different here, such as SentencePiece on raw text in place of lower-cased Moses tokens.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

MANY = 1_000_000  # updates or epochs: the clock ends the training
PIECES = 10_000  # of the vocabularies for both languages, as in fairseq's recipe


@dataclass(frozen=True)
class Task:
    """The task of all programs.

    Attributes:
        source: training text, a sentence a line.
        target: its translation.
        valid_source: validation text.
        valid_target: its translation.
        langs: codes of source and target, such as `en` and `de`.
        minutes: time of each program.
        cores: CPU cores of each program.
        every: updates between the checkpoints of a peer.
    """

    source: Path
    target: Path
    valid_source: Path
    valid_target: Path
    langs: tuple[str, str]
    minutes: float
    cores: int
    every: int

    def as_dict(self) -> dict[str, Any]:
        """Returns the attributes as JSON has them."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return values

    def environment(self) -> dict[str, str]:
        """Returns the environment of all commands: the same number of threads, no GPU, no network."""
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(self.cores))
        fixed = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1"}
        return {**os.environ, **threads, **fixed}


class Program(ABC):
    """A program in a Python environment.

    Attributes:
        name: its name in arguments and results.
        module: the module that is imported to see that it is installed.
        install: the command that installs it.
        recipe: the recipe and its source.
        ends_by_itself: whether it is told the minutes; the clock then stops it only after an overtime.
        python: the Python of its environment.
    """

    name: ClassVar[str]
    module: ClassVar[str]
    install: ClassVar[str]
    recipe: ClassVar[str]
    ends_by_itself: ClassVar[bool] = False

    def __init__(self, python: Path) -> None:
        """Stores the Python of the environment."""
        self.python = python

    def installed(self) -> bool:
        """Whether the program can be imported."""
        command = [str(self.python), "-c", f"import {self.module}"]
        return (
            self.python.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0
        )

    @abstractmethod
    def commands(self, task: Task, work: Path) -> Sequence[list[str]]:
        """Returns the commands from raw text to the end of the training; may write options into `work`."""

    @abstractmethod
    def checkpoints(self, work: Path) -> list[Path]:
        """Returns the checkpoints after a training."""

    @abstractmethod
    def translation(self, task: Task, work: Path, checkpoint: Path, output: Path) -> list[str]:
        """Returns the command that translates the validation text, which is also its standard input."""

    def hypotheses(self, output: Path) -> list[str]:
        """Returns the translations in the output of `translation`."""
        return output.read_text("utf-8").removesuffix("\n").split("\n")

    def script(self, name: str) -> str:
        """Returns the path of a command in the environment."""
        return str(self.python.parent / name)

    def sentencepiece(self, task: Task, work: Path, **options: object) -> list[str]:
        """Returns the command that learns `work/pieces.model` and `.vocab`, for both languages."""
        given = {
            "input": f"{task.source},{task.target}",
            "model_prefix": str(work / "pieces"),
            "vocab_size": PIECES,
            "hard_vocab_limit": False,
            "character_coverage": 1.0,
            **options,
        }
        code = f"import sentencepiece; sentencepiece.SentencePieceTrainer.train(**{given!r})"
        return [str(self.python), "-c", code]


class Nmt(Program):
    """This project, without one option but the time."""

    name, module = "nmt", "nmt"
    install = "pip install -e ."
    recipe = "recipe=auto with training.budget"
    ends_by_itself = True

    def commands(self, task: Task, work: Path) -> Sequence[list[str]]:
        """One command does all."""
        return [
            [
                self.script("nmt-train"), "recipe=auto", "data=local", f"training.budget={task.minutes:g}m",
                f"data.source_lang={task.langs[0]}", f"data.target_lang={task.langs[1]}",
                f"data.train.source={task.source}", f"data.train.target={task.target}",
                f"data.valid.source={task.valid_source}", f"data.valid.target={task.valid_target}",
                "training.keep_checkpoints=10000", f"run_dir={work / 'run'}",
            ]
        ]  # fmt: skip

    def checkpoints(self, work: Path) -> list[Path]:
        """The checkpoints and the final model, which may be a mean of them."""
        model = work / "run" / "model"
        return [*(work / "run" / "checkpoints").glob("update-*"), *([model] if model.exists() else [])]

    def translation(self, task: Task, work: Path, checkpoint: Path, output: Path) -> list[str]:
        """Translates as `nmt-translate` does by default."""
        return [self.script("nmt-translate"), f"model_dir={checkpoint}", f"input={task.valid_source}",
                f"output={output}"]  # fmt: skip


class Fairseq(Program):
    """fairseq 0.12 with its recipe for IWSLT 2014. 0.12.2 itself can't be imported in Python 3.11."""

    name, module = "fairseq", "fairseq_cli.train"
    install = "pip install fairseq-fixed==0.12.3.1 sentencepiece"
    recipe = "transformer_iwslt_de_en, examples/translation/README.md (IWSLT 2014 De-En)"

    def commands(self, task: Task, work: Path) -> Sequence[list[str]]:
        """Pieces, binary data, training."""
        texts = {
            f"train.{task.langs[0]}": task.source,
            f"train.{task.langs[1]}": task.target,
            f"valid.{task.langs[0]}": task.valid_source,
            f"valid.{task.langs[1]}": task.valid_target,
        }
        pairs = [(str(path), str(work / name)) for name, path in texts.items()]
        encode = (
            "import sentencepiece\n"
            f"p = sentencepiece.SentencePieceProcessor(model_file={str(work / 'pieces.model')!r})\n"
            f"for a, b in {pairs!r}:\n"
            "    with open(a, newline='\\n') as text, open(b, 'w') as out:\n"
            "        for line in text: print(*p.encode(line.rstrip('\\n'), out_type=str), file=out)\n"
        )
        langs = ["-s", task.langs[0], "-t", task.langs[1]]
        return [
            self.sentencepiece(task, work, model_type="bpe"),
            [str(self.python), "-c", encode],
            [
                self.script("fairseq-preprocess"), *langs, "--joined-dictionary",
                "--destdir", str(work / "data"),
                "--trainpref", str(work / "train"), "--validpref", str(work / "valid"),
                "--workers", str(task.cores),
            ],
            [
                self.script("fairseq-train"), str(work / "data"), *langs, "--cpu",
                "--arch", "transformer_iwslt_de_en", "--share-all-embeddings",
                "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "0.0",
                "--lr", "5e-4", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4000",
                "--dropout", "0.3", "--weight-decay", "0.0001",
                "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1",
                "--max-tokens", "4096", "--seed", "1",
                "--eval-bleu", "--eval-bleu-args", '{"beam": 5, "max_len_a": 1.2, "max_len_b": 10}',
                "--eval-bleu-remove-bpe", "sentencepiece", "--best-checkpoint-metric", "bleu",
                "--maximize-best-checkpoint-metric", "--save-interval-updates", str(task.every),
                "--no-last-checkpoints", "--save-dir", str(work / "checkpoints"),
            ],
        ]  # fmt: skip

    def checkpoints(self, work: Path) -> list[Path]:
        """All but the copy of the best."""
        return [path for path in (work / "checkpoints").glob("checkpoint*.pt") if "best" not in path.name]

    def translation(self, task: Task, work: Path, checkpoint: Path, output: Path) -> list[str]:
        """Translates with the beam of the recipe; the translations are among other lines."""
        langs = ["-s", task.langs[0], "-t", task.langs[1]]
        return [
            "env", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1",  # its checkpoints have pickled options
            self.script("fairseq-generate"), str(work / "data"), *langs, "--cpu", "--gen-subset", "valid",
            "--path", str(checkpoint), "--batch-size", "128", "--beam", "5",
            "--required-batch-size-multiple", "1",  # 8, the default, omits the last sentences
            "--remove-bpe", "sentencepiece", "--results-path", str(output),
        ]  # fmt: skip

    def hypotheses(self, output: Path) -> list[str]:
        """The lines `D-number TAB score TAB text`, by number."""
        lines = (output / "generate-valid.txt").read_text("utf-8").split("\n")
        found = (re.fullmatch(r"D-(\d+)\t[^\t]*\t(.*)", line) for line in lines)
        return [text for _, text in sorted((int(match[1]), match[2]) for match in found if match)]


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

    name, module = "joeynmt", "joeynmt.training"
    install = "pip install joeynmt==2.3.0 importlib_metadata 'sentencepiece<0.2.2'"
    recipe = "configs/transformer_iwslt14_deen_sp.yaml of JoeyNMT 1 (IWSLT 2014 De-En)"

    def commands(self, task: Task, work: Path) -> Sequence[list[str]]:
        """Pieces, the list of pieces, training."""
        for name in ("train", "valid"):  # the program wants one name for both languages
            source, target = (
                (task.source, task.target) if name == "train" else (task.valid_source, task.valid_target)
            )
            (work / f"{name}.{task.langs[0]}").symlink_to(source)
            (work / f"{name}.{task.langs[1]}").symlink_to(target)
        (work / "config.yaml").write_text(json.dumps(self._options(task, work)), "utf-8")  # JSON is YAML
        pieces = (
            f"lines = open({str(work / 'pieces.vocab')!r}, encoding='utf-8').read().split('\\n')\n"
            "names = [line.split('\\t')[0] for line in lines if line]\n"
            f"open({str(work / 'vocab.txt')!r}, 'w', encoding='utf-8').write('\\n'.join(names) + '\\n')"
        )
        ids = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3, "pad_piece": "<pad>"}
        return [
            self.sentencepiece(task, work, **ids),
            [str(self.python), "-c", pieces],
            [str(self.python), "-c", _JOEYNMT, "train", str(work / "config.yaml"), "--skip-test"],
        ]

    def checkpoints(self, work: Path) -> list[Path]:
        """One for each validation; `latest` and `best` are links."""
        return [*(work / "model").glob("[0-9]*.ckpt")]

    def translation(self, task: Task, work: Path, checkpoint: Path, output: Path) -> list[str]:
        """Translates its standard input; an option names the checkpoint."""
        options = self._options(task, work)
        options["testing"]["load_model"] = str(checkpoint)
        config = output.with_suffix(".yaml")
        config.write_text(json.dumps(options), "utf-8")
        return [str(self.python), "-c", _JOEYNMT, "translate", str(config), "--output-path", str(output)]

    def _options(self, task: Task, work: Path) -> dict[str, Any]:
        def side(lang: str) -> dict[str, Any]:
            return {
                "lang": lang, "level": "bpe", "lowercase": False, "max_length": 62, "voc_min_freq": 1,
                "voc_file": str(work / "vocab.txt"), "tokenizer_type": "sentencepiece",
                "tokenizer_cfg": {"model_file": str(work / "pieces.model"), "model_type": "unigram"},
            }  # fmt: skip

        layers = {
            "type": "transformer", "num_layers": 6, "num_heads": 4, "hidden_size": 256, "ff_size": 1024,
            "embeddings": {"embedding_dim": 256, "scale": True, "dropout": 0.0}, "dropout": 0.3,
        }  # fmt: skip
        return {
            "name": "race", "joeynmt_version": "2.3.0", "model_dir": str(work / "model"), "use_cuda": False,
            "fp16": False, "random_seed": 42,
            "data": {
                "train": str(work / "train"), "dev": str(work / "valid"), "dataset_type": "plain",
                "src": side(task.langs[0]), "trg": side(task.langs[1]),
            },
            "testing": {
                "beam_size": 5, "beam_alpha": 1.0, "batch_size": 1024, "batch_type": "token",
                "max_output_length": 100, "eval_metrics": ["bleu"], "sacrebleu_cfg": {"tokenize": "13a"},
            },
            "training": {
                "optimizer": "adam", "normalization": "tokens", "adam_betas": [0.9, 0.999],
                "scheduling": "plateau", "patience": max(1, 5000 // task.every), "decrease_factor": 0.7,
                "loss": "crossentropy", "label_smoothing": 0.1, "learning_rate": 0.0003,
                "learning_rate_min": 0.0, "weight_decay": 0.0, "batch_size": 4096, "batch_type": "token",
                "early_stopping_metric": "bleu", "epochs": MANY, "validation_freq": task.every,
                "logging_freq": min(100, task.every), "shuffle": True, "keep_best_ckpts": -1,
            },
            "model": {
                "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "init_gain": 1.0,
                "embed_init_gain": 1.0, "bias_initializer": "zeros",
                "tied_embeddings": True, "tied_softmax": True, "encoder": layers, "decoder": layers,
            },
        }  # fmt: skip


class Eole(Program):
    """Eole with its WMT 2017 recipe, in the size of the paper's base model."""

    name, module = "eole", "eole.bin.main"
    install = "pip install eole==0.6.4 aiohttp"
    recipe = "recipes/wmt17/wmt17_ende_spm.yaml, with the base size and no accumulation"

    def commands(self, task: Task, work: Path) -> Sequence[list[str]]:
        """Pieces, their list, training."""
        (work / "config.yaml").write_text(json.dumps(self._options(task, work)), "utf-8")
        config = ["--config", str(work / "config.yaml")]
        return [
            self.sentencepiece(task, work, model_type="bpe"),
            [self.script("eole"), "build_vocab", *config, "--n_sample", "-1"],
            [self.script("eole"), "train", *config],
        ]

    def checkpoints(self, work: Path) -> list[Path]:
        """The folders of steps that have weights."""
        return [path.parent for path in (work / "model").glob("step_*/model.00.safetensors")]

    def translation(self, task: Task, work: Path, checkpoint: Path, output: Path) -> list[str]:
        """Translates with the transforms that are stored with the model."""
        return [
            self.script("eole"), "predict", "--model_path", str(checkpoint), "--src", str(task.valid_source),
            "--output", str(output), "--beam_size", "5", "--batch_type", "tokens", "--batch_size", "4096",
        ]  # fmt: skip

    def _options(self, task: Task, work: Path) -> dict[str, Any]:
        vocabulary, model = str(work / "vocab.txt"), str(work / "pieces.model")
        return {
            "save_data": str(work / "data"), "overwrite": True, "seed": 1234, "report_every": 100,
            "valid_metrics": ["BLEU"], "src_vocab": vocabulary, "tgt_vocab": vocabulary, "share_vocab": True,
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
                "model_path": str(work / "model"), "keep_checkpoint": -1, "save_checkpoint_steps": task.every,
                "valid_steps": task.every, "train_steps": MANY, "world_size": 1, "gpu_ranks": [],
                "batch_type": "tokens", "batch_size": 5000, "valid_batch_size": 4096,
                "batch_size_multiple": 8, "accum_count": [1], "accum_steps": [0], "compute_dtype": "fp32",
                "optim": "adam", "learning_rate": 2, "warmup_steps": 4000, "decay_method": "noam",
                "adam_beta2": 0.998, "bucket_size": 262144, "num_workers": 0, "dropout_steps": [0],
                "dropout": [0.1], "attention_dropout": [0.1], "max_grad_norm": 0, "label_smoothing": 0.1,
                "param_init_method": "xavier_uniform", "normalization": "tokens",
            },
            "model": {
                "architecture": "transformer", "hidden_size": 512, "layers": 6, "heads": 8,
                "transformer_ff": 2048, "share_decoder_embeddings": True, "share_embeddings": True,
                "embeddings": {"word_vec_size": 512, "position_encoding_type": "SinusoidalInterleaved"},
            },
        }  # fmt: skip


class Marian(Program):
    """Hugging Face's Marian from scratch, trained by `Seq2SeqTrainer` in scripts/race_marian.py."""

    name, module = "marian", "transformers, sentencepiece, accelerate"
    install = "pip install transformers==5.24.0 sentencepiece accelerate"
    recipe = "fairseq's IWSLT 2014 recipe in transformers, which publishes none for training from scratch"
    trainer: ClassVar[Path] = Path(__file__).with_name("race_marian.py")

    def commands(self, task: Task, work: Path) -> Sequence[list[str]]:
        """Pieces; one script does the rest."""
        texts = [str(each) for each in (task.source, task.target, task.valid_source, task.valid_target)]
        train = [str(self.python), str(self.trainer), "train", str(work), str(task.every), *texts]
        return [self.sentencepiece(task, work, model_type="bpe"), train]

    def checkpoints(self, work: Path) -> list[Path]:
        """The folders that the trainer completed: it writes its state last."""
        return [path.parent for path in work.glob("checkpoint-*/trainer_state.json")]

    def translation(self, task: Task, work: Path, checkpoint: Path, output: Path) -> list[str]:
        """Translates with the beam of the recipe."""
        return [str(self.python), str(self.trainer), "translate", str(work), str(checkpoint),
                str(task.valid_source), str(output)]  # fmt: skip


PROGRAMS: Mapping[str, type[Program]] = {each.name: each for each in (Nmt, Fairseq, JoeyNmt, Eole, Marian)}
"""Name → program."""
