"""A model folder: written completely, read back equal; a clear message for damaged and untrusted ones."""

from __future__ import annotations

import errno
import json
import os
import random
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from nmt.bundle import (
    load_bundle,
    load_weights,
    read_weights,
    save_bundle,
)
from nmt.config import DataConfig, ModelConfig, Norm, Tie, TokenizerConfig, TrainConfig
from nmt.config.storage import from_yaml, to_yaml
from nmt.data.subwords.learning import train_tokenizer
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.model.size import num_weights
from nmt.model.transformer import Transformer
from nmt.runtime import tensors

WORDS = "the cat sat on a mat and saw one old dog run home again".split()
PAIRS = [(" ".join(WORDS[i:] + WORDS[:i]), " ".join(reversed(WORDS[i:] + WORDS[:i]))) for i in range(14)]


FILES = ["config.yaml", "model.safetensors", "source.spm", "target.spm", "results.json", "SHA256SUMS"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return train_tokenizer(
        lambda: iter(PAIRS), TokenizerConfig(vocab_size=320), tmp_path_factory.mktemp("tokenizer")
    )


@pytest.fixture
def config() -> TrainConfig:
    config = TrainConfig(name="small", run_dir="runs/small")
    config.data.name, config.data.source_lang, config.data.target_lang = "toy", "en", "de"
    config.model = ModelConfig(
        encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, heads=2, norm=Norm.pre
    )
    return config


def model_for(config: TrainConfig, tokenizer: Tokenizer) -> Transformer:
    torch.manual_seed(1)
    return Transformer(config.model, tokenizer.source.size, tokenizer.target.size)


def test_round_trip(tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer) -> None:
    weights = model_for(config, tokenizer).state_dict()
    folder = tmp_path / "run" / "model"
    save_bundle(folder, config, weights, tokenizer, {"test": {"bleu": 1.5}})
    bundle = load_bundle(tmp_path / "run")
    assert bundle.folder == folder and load_bundle(folder).folder == folder
    assert bundle.config == config
    assert bundle.results == {"test": {"bleu": 1.5}}
    assert bundle.tokenizer.fingerprint == tokenizer.fingerprint
    assert not bundle.model.training
    assert all(torch.equal(tensor, weights[name]) for name, tensor in bundle.model.state_dict().items())


def test_saving_again_replaces_and_leaves_nothing_else(
    tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer
) -> None:
    weights = model_for(config, tokenizer).state_dict()
    for score in (1, 2):
        save_bundle(tmp_path / "model", config, weights, tokenizer, {"score": score})
    assert json.loads((tmp_path / "model" / "results.json").read_text()) == {"score": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_configuration_as_yaml_keeps_every_option(config: TrainConfig) -> None:
    config.training.max_minutes = 1.5
    config.data.tokenizer.user_symbols = ["<a>"]
    assert from_yaml(TrainConfig, to_yaml(config), "x") == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: {d_modl: 3}", "x: model.d_modl: this version of nmt has no such option"),
        ("model: [", "x: is damaged: line 3: "),
        ("decoding: {beam_size: 0}", "x: decoding.beam_size=0: must be between 1 and 1,000"),
        ("- a list", "x: is damaged: line 2: "),
    ],
)
def test_configurations_that_are_wrong(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        from_yaml(TrainConfig, f"data: {{name: a, source_lang: b, target_lang: c}}\n{text}", "x")
    assert str(caught.value).startswith(words)


def test_weights_of_another_vocabulary_or_shape(
    tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer
) -> None:
    model = model_for(config, tokenizer)
    other = Transformer(config.model, tokenizer.source.size + 1, tokenizer.target.size + 1)
    with pytest.raises(UserError, match="w: belongs to another vocabulary"):
        load_weights(model, other.state_dict(), Path("w"))
    config.model.decoder_layers = 2
    deeper = model_for(config, tokenizer)
    with pytest.raises(UserError, match="w: belongs to another model: it has an unknown"):
        load_weights(model, deeper.state_dict(), Path("w"))
    with pytest.raises(UserError, match="w: belongs to another model: it lacks"):
        load_weights(deeper, model.state_dict(), Path("w"))


def test_damaged_weights_are_named(tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer) -> None:
    save_bundle(tmp_path / "model", config, model_for(config, tokenizer).state_dict(), tokenizer, {})
    path = tmp_path / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=r"model.safetensors: is damaged"):
        load_bundle(tmp_path)
    with pytest.raises(UserError, match="can't read .*: it does not exist"):
        read_weights(tmp_path / "none")


def test_results_that_are_damaged_are_done_without(
    tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    model = Transformer(config.model, tokenizer.source.size, tokenizer.target.size)
    save_bundle(tmp_path / "model", config, model.state_dict(), tokenizer, {"a": 1})
    (tmp_path / "model" / "SHA256SUMS").unlink()
    deep = "[" * 100_000
    for text in (
        '{"a": ',
        "[]",
        "7",
        '{"data": []}',
        '{"data": {"test": 1}}',
        '{"data": {"test": {"sets": []}}}',
        '{"data": {"test": {"sets": {"a": 1}}}}',
        '{"training": "x"}',
        deep,
        "9" * 5000,
    ):
        (tmp_path / "model" / "results.json").write_text(text)
        caplog.clear()
        assert load_bundle(tmp_path).results == {}
        assert "results.json is damaged and will be ignored" in caplog.text


def test_a_full_disk_is_told_and_leaves_the_model_there_was(
    tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = model_for(config, tokenizer).state_dict()
    save_bundle(tmp_path / "model", config, weights, tokenizer, {"score": 1})

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tensors, "file_parts", full)
    with pytest.raises(UserError, match=r"can't write .*model: no space is left"):
        save_bundle(tmp_path / "model", config, weights, tokenizer, {"score": 2})
    assert load_bundle(tmp_path).results == {"score": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_a_killed_process_left_is_cleared_away(
    tmp_path: Path, config: TrainConfig, tokenizer: Tokenizer
) -> None:
    weights = model_for(config, tokenizer).state_dict()
    for score in (1, 2):
        for name in (".model.tmp", ".model.old"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "model.safetensors").write_text("left")
        save_bundle(tmp_path / "model", config, weights, tokenizer, {"score": score})
        assert load_bundle(tmp_path).results == {"score": score}
        assert [path.name for path in tmp_path.iterdir()] == ["model"]


# Damaged, edited or untrusted folders, and those of earlier versions


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A tiny model."""
    config = TrainConfig(run_dir="runs/a", data=DataConfig(name="d", source_lang="en", target_lang="de"))
    config.model = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=8, heads=2)
    model = Transformer(config.model, tokenizer.source.size, tokenizer.target.size)
    save_bundle(
        tmp_path / "model", config, model.state_dict(), tokenizer, {"test": {"bleu": 1.5}, "data": {}}
    )
    return tmp_path / "model"


def flips(content: bytes, count: int) -> Iterator[bytes]:
    """Yields the content with one byte changed, at random places."""
    chance = random.Random(0)
    for _ in range(count):
        changed = bytearray(content)
        changed[chance.randrange(len(content))] ^= chance.randrange(1, 256)
        yield bytes(changed)


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_byte_is_noticed(name: str, folder: Path) -> None:
    path = folder / name
    for changed in flips(path.read_bytes(), 30):
        path.write_bytes(changed)
        with pytest.raises(UserError) as caught:
            load_bundle(folder)
        assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_the_sums_are_those_of_sha256sum(folder: Path) -> None:
    import hashlib

    lines = (folder / "SHA256SUMS").read_text().splitlines()
    assert lines == [
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}" for name in sorted(FILES[:-1])
    ]


@pytest.mark.parametrize("name", FILES[:-1])
def test_a_missing_file_is_noticed(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(UserError):
        load_bundle(folder)


def test_folders_without_sums_and_with_other_files_load(folder: Path) -> None:
    (folder / "README.md").write_text("mine")
    (folder / ".DS_Store").write_bytes(b"\x00")
    assert load_bundle(folder).results["test"] == {"bleu": 1.5}
    (folder / "SHA256SUMS").unlink()  # as in earlier versions
    assert load_bundle(folder).results["test"] == {"bleu": 1.5}


def test_an_edit_is_accepted_without_the_sums(folder: Path) -> None:
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("beam_size: 4", "beam_size: 5"))
    with pytest.raises(
        UserError, match=r"config\.yaml: is damaged: its checksum is not the one in SHA256SUMS"
    ):
        load_bundle(folder)
    (folder / "SHA256SUMS").unlink()
    assert load_bundle(folder).config.decoding.beam_size == 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "\n",
        "0" * 64 + "  a",
        "0" * 64 + " *config.yaml\n",
        "0" * 64 + "  ../../x\n",
        "\x00" * 99,
        "\xff",
    ],
)
def test_sums_that_are_no_list(text: str, folder: Path) -> None:
    (folder / "SHA256SUMS").write_text(text)
    with pytest.raises(UserError, match="SHA256SUMS"):
        load_bundle(folder)


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_all_files_follow_the_umask(mask: int, tmp_path: Path, tokenizer: Tokenizer) -> None:
    before = os.umask(mask)
    try:
        config = TrainConfig(run_dir="r", data=DataConfig(name="d", source_lang="en", target_lang="de"))
        save_bundle(tmp_path / "model", config, {"w": torch.ones(3)}, tokenizer, {})
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").iterdir()}
    assert modes == dict.fromkeys([*FILES, "README.md"], 0o666 & ~mask)


# Untrusted content, without checksums


def edited(change: Callable[[str], str]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "config.yaml"
        text = path.read_text()
        assert change(text) != text
        path.write_text(change(text))

    return edit


def option(key: str, old: object, new: object) -> Callable[[Path], None]:
    return edited(lambda text: text.replace(f"{key}: {old}\n", f"{key}: {new}\n"))


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return edit


def fill(value: float) -> Callable[[dict[str, torch.Tensor]], object]:
    return lambda tensors: tensors["encoder.0.feed_forward.inner.bias"].__setitem__(3, value)


def replaced(name: str, content: bytes) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return edit


def fifo(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return edit


BIAS = "encoder.0.feed_forward.inner.bias"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (option("encoder_layers", 1, 10**9), "model.encoder_layers="),
        (option("encoder_layers", 1, 1000), "belongs to another configuration or vocabulary"),
        (option("decoder_layers", 1, 2), "belongs to another configuration or vocabulary"),
        (option("d_model", 8, 10**9), "model.d_model="),
        (option("d_model", 8, 16384), "belongs to another configuration or vocabulary"),
        (option("d_ff", 8, 10**40), "model.d_ff="),
        (option("d_ff", 8, 10**5), "belongs to another configuration or vocabulary"),
        (option("heads", 2, 10**9), "model.heads="),
        (edited(lambda text: "a: &a [x]\nb: *a\n" + text), "anchors and aliases"),
        (edited(lambda text: text + "#" * (1 << 21)), "more than 1,048,576 bytes"),
        (weights(fill(float("nan"))), f"{BIAS} holds NaN or infinite numbers"),
        (weights(lambda w: w.update({BIAS: w[BIAS].int()})), f"{BIAS} holds I32 numbers"),
        (weights(lambda w: w.update({BIAS: w[BIAS][:4].clone()})), "belongs to another configuration"),
        (weights(lambda w: w.update({BIAS: w[BIAS].view(2, 4)})), "belongs to another configuration"),
        (weights(lambda w: w.pop(BIAS)), "belongs to another"),
        (
            weights(lambda w: w.update({"more": torch.ones(1)})),
            "it has an unknown more",
        ),
        (replaced("model.safetensors", b"\xff" * 8), "its header is longer than the file"),
        (replaced("source.spm", b""), "source.spm or target.spm is damaged or from"),
        (
            replaced("source.spm", b"\x80" * 100_000),
            "source.spm or target.spm is damaged or from",
        ),
        (
            replaced("source.spm", b"\x0a" + b"\xff" * 9 + b"\x01"),
            "source.spm or target.spm is damaged or from",
        ),
        (
            replaced("source.spm", b"x" * (1 << 26) + b"y"),
            "it has more than 67,108,864 bytes",
        ),
        (fifo("results.json"), "results.json: is not a regular file"),
        (fifo("SHA256SUMS"), "SHA256SUMS: is not a regular file"),
        (fifo("source.spm"), "lacks joint.spm, or source.spm and target.spm"),
        (fifo("config.yaml"), "not a model folder"),
    ],
    ids=range(25),
)
def test_what_a_stranger_may_send_is_refused(edit: Callable[[Path], None], words: str, folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()
    edit(folder)
    with pytest.raises(UserError) as caught:
        load_bundle(folder)
    assert words in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_half_precision_weights_are_read(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()
    for kind in (torch.bfloat16, torch.float16):
        weights(lambda w, kind=kind: w.update({name: t.to(kind) for name, t in w.items()}))(folder)
        assert {p.dtype for p in load_bundle(folder).model.parameters()} == {torch.float32}


def test_damaged_pieces_are_one_line(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()
    path = folder / "source.spm"
    refused = 0
    for changed in flips(path.read_bytes(), 30):
        path.write_bytes(changed)
        try:
            load_bundle(folder)
        except UserError:
            refused += 1
    assert refused > 3


@pytest.mark.parametrize("tie", list(Tie))
@pytest.mark.parametrize("norm", list(Norm))
def test_the_number_of_weights(tie: Tie, norm: Norm) -> None:
    sizes = (70, 70) if tie is Tie.all else (50, 70)
    for widths in ((None, None), (4, 7)):
        config = ModelConfig(2, 3, 12, 20, 2, *widths, tie=tie, norm=norm)
        assert num_weights(config, *sizes) == Transformer(config, *sizes).num_parameters
