"""Imports of Marian models that transformers alone has built, and of our own exports."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from exported_models import LINES, POST, REFERENCES, WORDS, positions
from hypothesis import given, settings
from hypothesis import strategies as st
from opus_models import opus_folder, write_tokenizer
from torch import Tensor

import nmt
from nmt.bundle import Bundle, load_bundle
from nmt.config import ExportConfig, ImportConfig, ModelConfig, Tie
from nmt.config.model import Activation
from nmt.data.subwords.tokenizer import MarianTokenizer
from nmt.data.subwords.vocabulary import BOS_ID, PAD_ID, UNK_ID
from nmt.errors import UserError
from nmt.interop import EXPORTERS, marian_model
from nmt.interop.marian_export import MarianExporter
from nmt.interop.marian_folder import Pieces, read_settings
from nmt.interop.marian_model import MarianModel, Numbering
from nmt.interop.parity import forced
from nmt.interop.tasks import export, import_model

pytest.importorskip("transformers", reason="the extra export is not installed")

from safetensors.torch import load_file, save_file  # noqa: E402

VARIANTS: dict[str, dict[str, Any]] = {
    "as OPUS-MT models": {},
    "tags of languages": {"tags": True},
    "two vocabularies": {"separate": True},
    "two vocabularies, untied": {"separate": True, "tie_word_embeddings": False},
    "one vocabulary, untied": {"tie_word_embeddings": False},
    "relu, other sizes": {
        "activation_function": "relu",
        "encoder_layers": 3,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 20,
        "decoder_ffn_dim": 20,
        "max_position_embeddings": 512,
    },
    "gelu": {"activation_function": "gelu"},
}


LESS_COMMON = (
    *("one vocabulary, untied", "two vocabularies, untied", "gelu"),
    *("tags of languages", "untied, gelu", "two vocabularies", "as in the paper"),
)
"""Variants whose parts other variants have; they are tested with the slow tests."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in LESS_COMMON else []) for name in VARIANTS],
)
def test_an_import_computes_the_same(name: str, tmp_path: Path) -> None:
    folder = opus_folder(tmp_path / "theirs", **VARIANTS[name])
    facts = import_model(ImportConfig(str(folder), str(tmp_path / "ours"), check_sentences=40))
    assert facts["sentences"] == 40 and facts["largest_difference"] <= 1e-4 and facts["near_ties"] <= 2
    bundle = load_bundle(tmp_path / "ours")
    assert bundle.results["import"] == facts
    assert bundle.config.model.output_bias
    data, decoding = bundle.config.data, bundle.config.decoding
    assert (data.source_lang, data.target_lang) == ("en", "de")
    assert (decoding.beam_size, decoding.length_penalty) == (4, 1.0)
    assert list(bundle.tokenizer.source_symbols) == (
        [">>deu<<", ">>nds<<"] if name.startswith("tags") else []
    )
    # What transformers finds by beam search has the same probabilities here.
    lines = LINES[::4]
    sources, beams, scores = beams_of_transformers(folder, lines)
    assert bundle.tokenizer.encode_source(lines) == sources
    repeated = [ids for ids in sources for _ in range(3)]
    found = [one.log_probs for one in forced(bundle.model, repeated, beams)]
    assert len(found) == 3 * len(lines)
    for ours, theirs in zip(found, scores, strict=True):
        assert ours[: len(theirs)] == pytest.approx(theirs, abs=1e-4)


def beams_of_transformers(
    folder: Path, lines: list[str]
) -> tuple[list[list[int]], list[list[int]], list[list[float]]]:
    """Returns our ids of the sources, and of three beams of each with the log-probabilities of their tokens.

    transformers does everything, one sentence at a time; only its ids are translated into ours, by name.
    """
    from transformers import MarianMTModel
    from transformers import MarianTokenizer as Theirs

    tokenizer: Any = Theirs.from_pretrained(folder)
    model: Any = MarianMTModel.from_pretrained(folder).eval()
    sides = []
    for encoder in (
        tokenizer.encoder,
        tokenizer.target_encoder if tokenizer.separate_vocabs else tokenizer.encoder,
    ):
        others = [id for piece, id in encoder.items() if piece not in ("</s>", "<unk>", "<pad>")]
        ours = {encoder["<pad>"]: 0, encoder["</s>"]: 2, encoder["<unk>"]: 3}
        sides.append(ours | {id: number for number, id in enumerate(sorted(others), 4)})
    sources, beams, scores = [], [], []
    with torch.no_grad():
        for line in lines:
            batch = tokenizer(line, return_tensors="pt")
            sources.append([sides[0][id] for id in batch["input_ids"][0].tolist()[:-1]])
            for beam in model.generate(
                **batch, num_beams=4, num_return_sequences=3, max_length=30, forced_eos_token_id=None
            ):
                ids = beam[beam != model.config.pad_token_id][None]
                read = torch.cat([torch.tensor([[model.config.pad_token_id]]), ids], 1)[:, :-1]
                log_probs = model(**batch, decoder_input_ids=read).logits.log_softmax(-1)
                scores.append(log_probs.gather(-1, ids[..., None])[0, :, 0].tolist())
                beams.append([sides[1][id] for id in ids[0].tolist() if id != model.config.eos_token_id])
    return sources, beams, scores


@pytest.fixture(scope="module", params=[False, True], ids=["one vocabulary", "two vocabularies"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, MarianTokenizer, Numbering]:
    """The tokenizer of transformers, ours, and their ids by ours."""
    from transformers import MarianTokenizer as Theirs

    folder = tmp_path_factory.mktemp("opus") / "theirs"
    opus_folder(folder, tags=True, separate=request.param)
    pieces = Pieces.read(folder)
    numbering = pieces.numbering(folder, read_settings(folder))
    ours = pieces.tokenizer(folder, numbering)
    assert isinstance(ours, MarianTokenizer)
    return Theirs.from_pretrained(folder), ours, numbering


HOSTILE = st.lists(
    st.one_of(
        st.sampled_from([" ", "  ", *">>deu<< >> << </s> <unk> <pad> <s> \u2581 ba gu Größe ñ".split()]),
        st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=8),
    ),
    max_size=12,
).map("".join)


@given(text=HOSTILE)
@settings(max_examples=400, deadline=None)
def test_text_has_the_ids_of_transformers(both: tuple[Any, MarianTokenizer, Numbering], text: str) -> None:
    theirs, ours, numbering = both
    for found, numbers, expected in (
        (ours.encode_source([text])[0], numbering.source, theirs(text)["input_ids"]),
        (ours.encode_target([text])[0], numbering.target, theirs(text_target=text)["input_ids"]),
    ):
        if numbers is numbering.source or numbering.source == numbering.target or "<pad>" not in text:
            # With two lists, transformers gives `<pad>` in a target text the id of the source list.
            assert [numbers[id] for id in found] == expected[:-1]
    assert len(ours.source_word_numbers(text)) == len(ours.encode_source([text])[0])


@given(ids=st.lists(st.integers(4, 40), max_size=30))
@settings(max_examples=200, deadline=None)
def test_ids_have_the_text_of_transformers(
    both: tuple[Any, MarianTokenizer, Numbering], ids: list[int]
) -> None:
    theirs, ours, numbering = both
    expected = theirs.decode([numbering.target[id] for id in ids], skip_special_tokens=True)
    assert ours.decode_target([ids]) == [expected]
    assert len(ours.decoded_word_numbers(ids)) == len(ids)


def test_literal_ids() -> None:
    """Of 6 ids, `</s>` and `<unk>` are the first two. `<pad>`, the last one, begins translations, too."""
    numbering = Numbering.of((6, 5, 5, 0, 1), (6, 5, 5, 0, 1))
    assert list(numbering.source) == [5, 5, 0, 1, 2, 3, 4]
    assert numbering.starts_with_padding and not numbering.is_identity
    own = Numbering.of((6, 0, 1, 2, 3), (5, 0, 1, 2, 3))
    assert own.is_identity and not own.starts_with_padding


def test_the_padding_id_keeps_its_probability(tmp_path: Path) -> None:
    folder = opus_folder(tmp_path / "theirs")
    import_model(ImportConfig(str(folder), str(tmp_path / "ours"), check_sentences=5))
    model: Any = load_bundle(tmp_path / "ours").model
    engine = MarianModel.load(folder).model
    bias = engine.final_logits_bias[0]
    assert model.output_bias[PAD_ID] == model.output_bias[BOS_ID]
    halves = model.output_bias[[PAD_ID, BOS_ID]].exp().sum()
    assert halves.item() == pytest.approx(bias[-1].exp().item())
    assert model.output_bias[UNK_ID] == bias[1]
    embedding = engine.model.shared.weight
    assert torch.equal(model.target_embedding.weight[[0, 1, 2, 3, 4]], embedding[[-1, -1, 0, 1, 2]])


@pytest.mark.parametrize("kind", ["half precision", "pickled"])
def test_other_files_of_weights(kind: str, tmp_path: Path) -> None:
    from transformers import MarianMTModel

    folder = opus_folder(tmp_path / "theirs")
    model: Any = MarianMTModel.from_pretrained(folder)
    if kind == "half precision":
        model.half().save_pretrained(folder)
    else:  # as most OPUS-MT models have them; transformers reads tensors alone from such a file
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    facts = import_model(ImportConfig(str(folder), str(tmp_path / "ours"), check_sentences=5))
    assert facts["largest_difference"] <= 1e-4


OWN: dict[str, ModelConfig] = {
    "as in the paper": POST,
    "halves": positions("sinusoidal", layout="halves"),
    "a vocabulary for each side": replace(POST, tie=Tie.target, output_bias=True),
    "untied, gelu": replace(POST, tie=Tie.none, activation=Activation.gelu),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LESS_COMMON else []) for name in OWN]
)
def test_an_export_imports_as_the_same_model_byte_for_byte(
    name: str, bundle_of: Callable[[ModelConfig], Bundle], tmp_path: Path
) -> None:
    original = bundle_of(OWN[name])
    MarianExporter().write(original, tmp_path / "marian", quantization="float32", max_length=128)
    if name == "halves":  # also if another program has written it
        settings = json.loads((tmp_path / "marian/config.json").read_text())
        del settings["nmt_position_layout"]
        (tmp_path / "marian/config.json").write_text(json.dumps(settings))
    import_model(ImportConfig(str(tmp_path / "marian"), str(tmp_path / "again"), check_sentences=20))
    again = load_bundle(tmp_path / "again")
    assert again.tokenizer.fingerprint == original.tokenizer.fingerprint
    assert again.config.model == original.config.model
    expected = original.model.state_dict()
    assert again.model.state_dict().keys() == expected.keys()
    for key, weight in again.model.state_dict().items():
        assert torch.equal(weight, expected[key]), key
    assert (tmp_path / "again/model.safetensors").read_bytes() == (
        original.folder / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("format", ["marian", "ctranslate2"])
def test_an_imported_model_is_exported_again(format: str, tmp_path: Path) -> None:
    if format == "ctranslate2":
        pytest.importorskip("ctranslate2", reason="the extra export is not installed")
    folder = opus_folder(tmp_path / "theirs")
    import_model(ImportConfig(str(folder), str(tmp_path / "ours"), check_sentences=5))
    names = {}
    for key, lines in (("check", LINES), ("references", REFERENCES)):
        names[key] = str(tmp_path / key)
        (tmp_path / key).write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ExportConfig(
        str(tmp_path / "ours"), str(tmp_path / "out"), format=format, max_length=128, **names
    )
    assert format in EXPORTERS
    result = export(options)
    assert result["exact"]["largest_difference"] <= 1e-4
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"source.spm", "target.spm"} <= files and "target_vocab.json" not in files
    assert set(re.findall(r"\w+\.spm", (tmp_path / "out/README.md").read_text())) <= files


def test_a_wrong_import_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = marian_model.ours_of

    def wrong(*args: Any) -> Any:
        for name, weight in right(*args):
            yield name, weight * 1.01 if name == "decoder.0.cross_attention.out.weight" else weight

    folder = opus_folder(tmp_path / "theirs")
    monkeypatch.setattr(marian_model, "ours_of", wrong)
    with pytest.raises(UserError, match=r"^format=marian: the imported model differs .* It was deleted\."):
        import_model(ImportConfig(str(folder), str(tmp_path / "ours"), check_sentences=5))
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def changed(name: str, key: str, value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        content[key] = value
        (folder / name).write_text(json.dumps(content))

    return change


def weight(name: str, replaced: Tensor | None) -> Callable[[Path], None]:
    """Removes or replaces a weight."""

    def change(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        del tensors[name]
        save_file(tensors | ({} if replaced is None else {name: replaced}), folder / "model.safetensors")

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (changed("config.json", "model_type", "bart"), "model_type=bart: not a Marian model of transformers"),
        (changed("config.json", "is_encoder_decoder", False), "is_encoder_decoder=false: must be true"),
        (changed("config.json", "scale_embedding", False), "scale_embedding=false: must be true"),
        (changed("config.json", "decoder_ffn_dim", 32), "decoder_ffn_dim=32: must be 48"),
        (
            changed("config.json", "activation_function", "tanh"),
            'activation_function="tanh": must be one of relu',
        ),
        (changed("config.json", "decoder_start_token_id", 0), "decoder_start_token_id=0: must be the id of"),
        (changed("vocab.json", "zz", 4000), "vocab.json: has more pieces than the model, which has"),
        (changed("vocab.json", "zz", "a"), "vocab.json: must have a number for each piece"),
        (lambda folder: (folder / "vocab.json").unlink(), "lacks vocab.json, so it is not a Marian model"),
        (
            changed("tokenizer_config.json", "separate_vocabs", True),
            "lacks target_vocab.json, so it is not a Marian model of transformers.",
        ),
        (lambda folder: (folder / "vocab.json").write_text("{"), "vocab.json: is damaged: "),
        (
            lambda folder: (folder / "vocab.json").write_text('{"a":' * 100_000),
            "vocab.json: is damaged: it is nested too deeply",
        ),
        (
            changed("tokenizer_config.json", "added_tokens_decoder", [1]),
            "added_tokens_decoder=1: must be a piece.",
        ),
        (
            changed("tokenizer_config.json", "extra_special_tokens", ["<new>"]),
            "tokenizer_config.json: has added pieces, which can't be imported",
        ),
        (
            changed("tokenizer_config.json", "separate_vocabs", "x"),
            'separate_vocabs="x": must be true',
        ),
        (lambda folder: (folder / "added_tokens.json").write_text("[1"), "added_tokens.json: is damaged: "),
        (lambda folder: (folder / "source.spm").unlink(), "lacks source.spm, so it is not a Marian model"),
        (lambda folder: (folder / "source.spm").write_bytes(b"x"), "source.spm: is damaged: not a Sent"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "model.safetensors: is damaged: "),
        (
            lambda folder: (folder / "model.safetensors").unlink(),
            "lacks model.safetensors or pytorch",
        ),
        (
            changed("config.json", "encoder_layers", 9),
            "lacks the weight model.encoder.layers.2.self_attn.q_proj.weight, which config.json needs.",
        ),
        (changed("config.json", "encoder_layers", 10**9), "encoder_layers"),
        (
            changed("config.json", "encoder_layers", "2"),
            'encoder_layers="2": must be a whole number',
        ),
        (changed("config.json", "d_model", 10**9), "d_model=1000000000: must be between 1 and 100,000"),
        (
            changed("config.json", "d_model", 64),
            "d_model=64: model.safetensors has no embeddings of this size",
        ),
        (
            changed("config.json", "vocab_size", 10**9),
            "model.safetensors has no embeddings of this size. It has ",
        ),
        (changed("config.json", "encoder_ffn_dim", 10**9), "decoder_ffn_dim=48: must be 1000000000"),
        (
            changed("config.json", "max_position_embeddings", 10**9),
            "max_position_embeddings=1000000000: must be at most 131,072",
        ),
        (
            weight("model.decoder.layers.1.fc1.weight", None),
            "lacks the weight model.decoder.layers.1.fc1.weight",
        ),
        (
            weight("model.decoder.layers.1.fc1.weight", torch.zeros(3, 4)),
            "model.decoder.layers.1.fc1.weight has the size 3 x 4. By config.json, it has 48 x ",
        ),
        (
            weight("model.encoder.layers.0.fc1.bias", torch.zeros(48, dtype=torch.int32)),
            "model.safetensors: is damaged: ",
        ),
        (
            weight("model.encoder.layers.0.fc1.bias", torch.full((48,), torch.nan)),
            "model.encoder.layers.0.fc1.bias holds NaN or infinite numbers",
        ),
        (
            changed("config.json", "encoder_layers", 1),
            "config.json has no place for 16 weights, such as model.encoder.layers.1.fc1.bias",
        ),
        (
            changed("tokenizer_config.json", "source_lang", None),
            "source_lang: the model does not say it. Give",
        ),
    ],
)
def test_models_that_cannot_be_imported(damage: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    folder = opus_folder(tmp_path / "theirs")
    damage(folder)
    with pytest.raises(UserError) as caught:
        import_model(ImportConfig(str(folder), str(tmp_path / "ours")))
    assert message in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_options_that_choose_code_are_not_read(tmp_path: Path) -> None:
    """transformers would ask a hub for the kernels, and fail at the others."""
    folder = opus_folder(tmp_path / "theirs")
    for key, value in {
        "attn_implementation": "someone/kernels",
        "_attn_implementation": "someone/kernels",
        "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True},
        "auto_map": {"AutoModel": "someone/code--model.Model"},
        "experts_implementation": 5,
        "torch_dtype": "no such type",
    }.items():
        changed("config.json", key, value)(folder)
    changed("tokenizer_config.json", "model_max_length", "x")(folder)
    changed("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["someone/code--t.T", None]})(folder)
    facts = import_model(ImportConfig(str(folder), str(tmp_path / "ours"), check_sentences=5))
    assert facts["largest_difference"] <= 1e-4


def test_recommended_options_that_are_not_numbers(tmp_path: Path) -> None:
    folder = opus_folder(tmp_path / "theirs")
    changed("generation_config.json", "length_penalty", "a")(folder)
    changed("generation_config.json", "num_beams", None)(folder)
    import_model(ImportConfig(str(folder), str(tmp_path / "ours"), check_sentences=5))
    decoding = load_bundle(tmp_path / "ours").config.decoding
    assert (decoding.beam_size, decoding.length_penalty) == (1, 1.0)


def test_unigram_and_bpe_models_are_sampled(tmp_path: Path) -> None:
    """Subword regularisation with the pieces of the list alone."""
    from nmt.config import Segmentation
    from nmt.data.subwords.segmentation import Sampler
    from nmt.runtime.arrays import Side

    for kind in ("unigram", "bpe"):
        write_tokenizer(tmp_path / kind, model_type=kind)
        names = json.loads((tmp_path / kind / "vocab.json").read_text())
        listed = ["<pad>", "<s>", "</s>", "<unk>", *[one for one in names if one[:1] != "<"]]
        models = tuple((tmp_path / kind / name).read_bytes() for name in ("source.spm", "target.spm"))
        tokenizer = MarianTokenizer((models[0], models[1]), listed, None)
        assert tokenizer.segmentation is Segmentation[kind]
        words = [word for word in WORDS if UNK_ID not in tokenizer.encode_source([word])[0]]
        assert len(words) > 20
        side = Side.of(tokenizer.encode_source([" ".join(words)] * 50), "int32")
        sampler = Sampler(tokenizer.source, tokenizer.segmentation, 0.3)
        drawn = [ids.tolist() for ids in sampler.resegment(side, 1)]
        assert len({tuple(ids) for ids in drawn}) > 1
        assert set(tokenizer.decode_target(drawn)) == {" ".join(words)}


def test_each_side_is_sampled_with_its_own_model(tmp_path: Path) -> None:
    """Both sides have the same list of pieces, but their SentencePiece models have other scores."""
    from nmt.data.batches.blocks import _samplers
    from nmt.data.subwords.segmentation import Sampler
    from nmt.runtime.arrays import Side

    write_tokenizer(tmp_path)
    listed = [one for one in json.loads((tmp_path / "vocab.json").read_text()) if one[:1] != "<"]
    models = (tmp_path / "source.spm").read_bytes(), (tmp_path / "target.spm").read_bytes()
    tokenizer = MarianTokenizer(models, ["<pad>", "<s>", "</s>", "<unk>", *listed], None)
    side = Side.of(tokenizer.encode_target([" ".join(WORDS)] * 50), "int32")
    drawn = [
        [ids.tolist() for ids in sampler.resegment(side, 1)]
        for sampler in (*_samplers(tokenizer, 0.3), Sampler(tokenizer.target, tokenizer.segmentation, 0.3))
    ]
    assert drawn[1] == drawn[2] != drawn[0]


def test_it_translates_from_python(tmp_path: Path) -> None:
    folder = opus_folder(tmp_path / "theirs", tags=True)
    import_model(ImportConfig(str(folder), str(tmp_path / "ours"), check_sentences=5))
    model = nmt.load(tmp_path / "ours")
    found = model.translate([">>deu<< ba be", "", "gu </s> ko"], beam_size=2)
    assert len(found) == 3 and found[1] == ""
