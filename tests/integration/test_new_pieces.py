"""Warm starts with new pieces: a new script and a new tag, resumed, exported, imported, and refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy import toy_config, write_toy

from nmt.bundle import Bundle, load_bundle, read_config, read_weights
from nmt.config import (
    CorpusConfig,
    ExportConfig,
    Extension,
    ImportConfig,
    TokenizerConfig,
    TrainConfig,
    TrainSplitConfig,
)
from nmt.data.corpora.text import read_lines
from nmt.data.preparation.prepare import prepare
from nmt.data.subwords.extension import byte_shares, is_extension
from nmt.errors import UserError
from nmt.interop.tasks import export, import_model
from nmt.runtime.files import parse_json
from nmt.training.run import train
from nmt.training.state.warm_start import initial_model, with_vocabulary

CYRILLIC = str.maketrans("abdefgiklmnou", "абдефгіклмноу")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of twelve updates, and its text in `old`; in `new` the target is in another script."""
    folder = tmp_path_factory.mktemp("base")
    old = write_toy(folder / "old", train=300, held_out=8)
    new = write_toy(folder / "new", train=300, held_out=8, seed=7)
    for file in new.glob("*.tgt"):
        file.write_text(file.read_text("utf-8").translate(CYRILLIC), "utf-8")
    train(toy_config(old, folder / "run"))
    return folder


def extending(base: Path, run_dir: Path, extend: Extension = Extension.auto) -> TrainConfig:
    """Returns the options of a run that starts from `base`, on its text and on that of another script."""
    config = toy_config(base / "new", run_dir)
    corpora = {
        name: CorpusConfig(
            source=f"{base / name / 'train.src'}", target=f"{base / name / 'train.tgt'}", tag=tag
        )
        for name, tag in (("old", None), ("new", "<2uk>"))
    }
    data = replace(
        config.data,
        train=TrainSplitConfig(corpora=corpora),
        valid=replace(config.data.valid, tag="<2uk>"),
        test=replace(config.data.test, tag="<2uk>"),
        tokenizer=replace(config.data.tokenizer, extend=extend),
    )
    return replace(config, start_from=str(base / "run"), data=data)


@pytest.fixture(scope="module")
def extended(base: Path) -> Bundle:
    """The model of a whole run of twelve updates."""
    train(extending(base, base / "extended"))
    return load_bundle(str(base / "extended"))


def pairs(folder: Path) -> list[tuple[str, str]]:
    sides = (read_lines(folder / f"train.{side}") for side in ("src", "tgt"))
    return [*zip(*sides, strict=True)]


def test_old_text_has_the_same_ids_and_new_text_few_bytes(base: Path, extended: Bundle) -> None:
    old, new = load_bundle(str(base / "run")).tokenizer, extended.tokenizer
    assert is_extension(new, old) and not is_extension(old, new)
    sources, targets = zip(*pairs(base / "old"), strict=True)
    assert new.encode_source(sources) == old.encode_source(sources)
    assert new.encode_target(targets) == old.encode_target(targets)
    assert byte_shares(pairs(base / "new"), old)[1] > 0.5
    assert byte_shares(pairs(base / "new"), new) == [0.0, 0.0]
    assert new.source_symbols == {"<2uk>": old.source.size}
    report = parse_json((base / "extended/data_report.json").read_bytes())
    assert report["target"]["byte_share"] == 0.0 and report["warnings"] == []


def test_new_rows_are_the_mean_of_those_that_they_replace(base: Path, extended: Bundle) -> None:
    config = with_vocabulary(extending(base, base / "again"))
    prepared = prepare(config.data)
    old, new = load_bundle(str(base / "run")), prepared.tokenizer
    size = old.tokenizer.target.size
    assert prepared.is_extended and new.fingerprint == extended.tokenizer.fingerprint
    there = read_weights(base / "run/model/model.safetensors")
    weights = initial_model(config, prepared).state_dict()
    for name, weight in there.items():
        assert torch.equal(weights[name][:size] if "embedding" in name else weights[name], weight), name
    rows = there["target_embedding.weight"]
    id = new.target.names.index("а")
    expected = rows[old.tokenizer.target.processor.piece_to_id(["<0xD0>", "<0xB0>"])].mean(0)
    torch.testing.assert_close(weights["target_embedding.weight"][id], expected)


def test_a_run_records_the_choice_and_resumes_byte_for_byte(
    base: Path, extended: Bundle, tmp_path: Path
) -> None:
    config = extending(base, tmp_path / "parts")
    train(replace(config, training=replace(config.training, max_updates=5)))
    assert read_config(tmp_path / "parts/config.yaml").data.tokenizer.extend is Extension.always
    train(config)
    name = "checkpoints/update-00000012/model.safetensors"
    assert (tmp_path / "parts" / name).read_bytes() == (base / "extended" / name).read_bytes()


@pytest.mark.parametrize("format", ["ctranslate2", "marian"])
def test_an_extended_model_is_exported_and_imported(
    base: Path, extended: Bundle, format: str, tmp_path: Path
) -> None:
    pytest.importorskip("transformers" if format == "marian" else "ctranslate2")
    check, references = base / "new/valid.src", base / "new/valid.tgt"
    text = {"check": str(check), "references": str(references)}
    result = export(ExportConfig(str(base / "extended"), str(tmp_path / "out"), format=format, **text))
    assert result["exact"]["sentences"] == 8 and result["exact"]["near_ties"] == 0
    if format == "marian":
        import_model(ImportConfig(str(tmp_path / "out"), str(tmp_path / "in"), **text))
        assert load_bundle(str(tmp_path / "in")).tokenizer.fingerprint == extended.tokenizer.fingerprint


def test_a_tag_is_refused_with_the_option(base: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tag=<2uk>: .* Set data.tokenizer.extend=always."):
        train(extending(base, tmp_path / "run", Extension.never))


def test_a_symbol_is_not_ignored(base: Path, tmp_path: Path) -> None:
    config = toy_config(base / "old", tmp_path / "run")
    for extend, start in ((Extension.never, str(base / "run")), (Extension.auto, None)):
        own = TokenizerConfig(path=str(base / "run"), user_symbols=["<x>"], extend=extend)
        with pytest.raises(UserError, match="has no piece '<x>'. Leave it out, or set data"):
            train(replace(config, start_from=start, data=replace(config.data, tokenizer=own)))
    own = replace(own, extend=Extension.always)
    assert prepare(replace(config.data, tokenizer=own)).tokenizer.source_symbols.keys() == {"<x>"}


def test_known_text_has_no_new_pieces(base: Path, tmp_path: Path) -> None:
    config = replace(toy_config(base / "old", tmp_path / "run"), start_from=str(base / "run"))
    train(config)
    assert read_config(tmp_path / "run/config.yaml").data.tokenizer.extend is Extension.never
    model = load_bundle(str(tmp_path / "run"))
    assert model.tokenizer.fingerprint == load_bundle(str(base / "run")).tokenizer.fingerprint


def test_frozen_embeddings_of_new_pieces_are_a_warning(
    base: Path, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    config = replace(extending(base, tmp_path / "run"), prepare_only=True)
    for parts, warns in ((["embeddings"], True), (["encoder"], False)):
        said.clear()
        train(replace(config, training=replace(config.training, freeze=parts)))
        assert re.search(r"data.tokenizer.extend=always: \d+ new pieces", said.text)
        warning = "training.freeze: target_embedding.weight is frozen, so the new pieces"
        assert (warning in said.text) is warns


def test_many_bytes_are_reported_with_the_option(
    base: Path, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    config = replace(toy_config(base / "new", tmp_path / "run"), start_from=str(base / "run"))
    own = replace(config.data.tokenizer, extend=Extension.never)
    train(replace(config, data=replace(config.data, tokenizer=own)))
    message = "8[0-9].[0-9]% of the target pieces are bytes or unknown.* data.tokenizer.extend=always"
    report = parse_json((tmp_path / "run/data_report.json").read_bytes())
    page = (tmp_path / "run/data_report.html").read_text("utf-8")
    assert all(re.search(message, text) for text in (said.text, *report["warnings"], page))
