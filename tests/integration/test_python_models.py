"""`nmt.load`: the same translations, scores and errors as the commands; process state is unchanged."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Toy

import nmt


@pytest.fixture(scope="module")
def model(trained: Path) -> nmt.Model:
    return nmt.load(trained)


def test_translations_equal_those_of_the_command(there: Toy, model: nmt.Model, unchanged: None) -> None:
    text = (there.folder / "test.src").read_text() + "\n  \nlast"
    written = there.run("nmt-translate", "model_dir=trained", text=text).stdout.decode()
    assert model.translate(text.split("\n")) == written.splitlines()
    with open("test.src", encoding="utf-8") as file:
        assert model.translate(file) == written.splitlines()[:20]
    assert model.translate(text.split("\n")[0]) == written.splitlines()[0]
    assert model.translate([]) == []
    options = ["decoding.beam_size=3", "decoding.length_penalty=1.5"]
    other = there.run("nmt-translate", "model_dir=trained", *options, text=text).stdout.decode()
    assert model.translate(text.split("\n"), beam_size=3, length_penalty=1.5) == other.splitlines()


def test_scores_equal_those_of_the_command(there: Toy, model: nmt.Model, unchanged: None) -> None:
    options = ["decoding.beam_size=3", "decoding.nbest=2", "decoding.length_penalty=0"]
    text = (there.folder / "test.src").read_text()
    rows = there.run("nmt-translate", "model_dir=trained", *options, text=text).stdout.decode().splitlines()
    found = model.translate_nbest(text.splitlines(), beam_size=3, nbest=2, length_penalty=0)
    assert [f"{n}\t{one.score:.4f}\t{one.text}" for n, row in enumerate(found, 1) for one in row] == rows


def test_given_translations_are_scored(model: nmt.Model, unchanged: None) -> None:
    pairs = [("ba be bi", "ib eb ab"), ("ba be bi\n", "ib"), ("ba", ""), ("", ""), (" ", "ib")]
    scores, tokens = model.score(pairs), model.score_tokens(pairs)
    assert scores == pytest.approx(list(map(sum, tokens)))
    assert scores[3:] == [0.0, -float("inf")] and len(tokens[2]) == 1
    assert all(-100 < score < -1 for score in scores[:3])


def test_attention_of_all_layers_and_heads(model: nmt.Model, unchanged: None) -> None:
    source, target = "ba ka", "ab ak"
    seen = model.attention(source, target)
    layers, heads = model.config.model.encoder_layers, model.config.model.heads
    num_source, num_target = len(seen.source), len(seen.target)
    assert (seen.source[-1], seen.target[0], seen.predicted[-1]) == ("</s>", "<s>", "</s>")
    assert seen.target[1:] == seen.predicted[:-1]
    assert "".join(seen.predicted[:-1]).replace("\u2581", " ").strip() == target
    assert seen.encoder is not None
    assert seen.decoder is not None
    assert seen.encoder.shape == (layers, heads, num_source, num_source)
    assert seen.decoder.shape == (layers, heads, num_target, num_target)
    assert seen.cross.shape == (layers, heads, num_target, num_source)
    for weights in (seen.encoder, seen.decoder, seen.cross):
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert not np.triu(seen.decoder, 1).any()
    assert '"predicted":' in model.attention_page([(source, target)])
    with pytest.raises(nmt.UserError, match="attention_page: there are no pairs"):
        model.attention_page([])
    cells = num_source**2 + num_target * (num_target + 1) // 2 + num_target * num_source
    reader, num_weights = model._readers({})[1], layers * heads * cells
    assert reader.attention(source, target, num_weights).source == seen.source
    with pytest.raises(nmt.UserError, match=f"have {num_weights} weights in this pair, and at most 9 are"):
        reader.attention(source, target, 9)
    own = model.attention(source, beam_size=2)
    np.testing.assert_array_equal(
        own.cross, model.attention(source, model.translate(source, beam_size=2)).cross
    )


@pytest.mark.parametrize(
    ("pair", "reported"),
    [
        ((" ", "a"), "attention: the source is blank. Give a sentence."),
        (("a\nb", "a"), "source 1: contains a line break"),
        (("ba " * 2000, "a"), "attention: the source has .* tokens, and at most .* are allowed"),
    ],
)
def test_attention_that_is_refused(
    model: nmt.Model, pair: tuple[str, str], reported: str, trained: Path
) -> None:
    with pytest.raises(nmt.UserError, match=reported):
        model.attention(*pair)
    with pytest.raises(nmt.UserError, match="attention: needs one model. Load each model alone"):
        nmt.load([trained, trained]).attention("a")


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("beam_sise=3", {"beam_sise": 3}),
        ("beam_size=many", {"beam_size": "many"}),
        ("length_penalty=null", {"length_penalty": None}),
        ("nbest=9", {"nbest": 9}),
    ],
)
def test_a_wrong_option_of_decoding_gets_the_sentence_of_the_command(
    written: str, given: dict[str, Any], there: Toy, model: nmt.Model, unchanged: None
) -> None:
    with pytest.raises(nmt.UserError) as raised:
        model.translate_nbest(["ba"], **given)
    reported = there.refused("nmt-translate", "model_dir=trained", f"decoding.{written}", text="ba\n")
    assert str(raised.value) == reported


def test_lines_that_are_none(model: nmt.Model) -> None:
    with pytest.raises(
        nmt.UserError, match="line 2: contains a line break. Give each line as a separate string"
    ):
        model.translate(["a", "b\nc"])
    with pytest.raises(nmt.UserError, match=r"line 1: not valid Unicode \(surrogate U\+DCFF\)"):
        model.translate("\udcff")
    with pytest.raises(TypeError, match="line 1: must be a str, not bytes"):
        model.translate([b"a"])  # type: ignore[list-item]
    with pytest.raises(nmt.UserError, match="target 1: contains a line break"):
        model.score([("a", "b\nc")])
    with pytest.raises(nmt.UserError, match="translate returns only the best one"):
        model.translate("a", nbest=2)


def test_a_cut_source_is_logged(model: nmt.Model, said: pytest.LogCaptureFixture) -> None:
    model.translate(["ba", "ba be bi bo bu"], max_source_tokens=3)
    assert "line 2: cut to 3 of " in said.text and "line 1" not in said.text


def test_what_a_model_says_of_itself(model: nmt.Model, trained: Path) -> None:
    assert (model.source_lang, model.target_lang, model.config.model.d_model) == ("xx", "yy", 32)
    assert repr(model) == f"<nmt.Model xx-yy from {trained / 'model'}>"
    assert nmt.load([str(trained), trained], threads=1).translate("ba be") == model.translate("ba be")


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_no_model_gets_the_sentence_of_the_command(folder: str, there: Toy, unchanged: None) -> None:
    with pytest.raises(nmt.UserError) as raised:
        nmt.load(folder)
    assert str(raised.value) == there.refused("nmt-translate", f"model_dir={folder}", text="")
    with pytest.raises(nmt.UserError, match="precision=int8: must be one of"):
        nmt.load("trained", precision="int8")
    with pytest.raises(nmt.UserError, match="device=tpu: must be auto"):
        nmt.load("trained", device="tpu")


def test_threads_share_a_model(model: nmt.Model, unchanged: None) -> None:
    lines = ["ba be", "bi bo bu", "fa"]
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(model.translate(lines))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [model.translate(lines)] * 3
