"""Options from YAML and the command line: valid combinations, and an error message for each mistake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config import (
    CleaningConfig,
    CorpusConfig,
    DecodingConfig,
    EvalConfig,
    HubConfig,
    Norm,
    TrainConfig,
    TranslateConfig,
)
from nmt.config.storage import from_yaml, to_yaml
from nmt.errors import UserError
from nmt.options.arguments import Arguments, configs_folder, read_arguments
from nmt.options.compose import changed_decoding, compose_jobs


def composed(*overrides: str) -> TrainConfig:
    (job,) = compose_jobs(TrainConfig, "train", Arguments(overrides))
    return job


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (configs_folder() / group).glob("*.yaml"))


LOCAL = ("data=local", "data.source_lang=en", "data.target_lang=de")


def test_nothing_else_is_the_quickstart() -> None:
    config = composed()
    assert (config.name, config.run_dir, config.data.name) == ("quickstart", "runs/quickstart", "quickstart")


def test_max_tokens_is_a_number_or_auto() -> None:
    assert composed("data.max_tokens=auto").data.max_tokens == "auto"
    assert composed("data.max_tokens=512").data.max_tokens == 512
    assert from_yaml(TrainConfig, to_yaml(composed("data.max_tokens=512")), "here").data.max_tokens == 512


def test_other_data_is_another_experiment() -> None:
    config = composed(*LOCAL)
    assert config.run_dir == "runs/local"
    assert (config.model.d_model, config.training.max_updates) == (512, 100_000)


@pytest.mark.parametrize("name", names("experiment"))
def test_every_experiment_composes(name: str) -> None:
    config = composed(f"experiment={name}")
    assert (config.name, config.run_dir) == (name, f"runs/{name}")


@pytest.mark.parametrize("name", names("model"))
def test_every_model_composes(name: str) -> None:
    composed(f"model={name}", "model/positions=sinusoidal")


@pytest.mark.parametrize("data", [name for name in names("data") if name != "local"] + ["local"])
def test_cleaning_is_chosen_with_any_data(data: str) -> None:
    chosen = LOCAL if data == "local" else (f"data={data}",)
    assert composed(*chosen).data.cleaning == CleaningConfig()
    crawled = composed(*chosen, "data/cleaning=crawled", "data.cleaning.max_word=99").data
    assert (crawled.name, crawled.cleaning.drop_near_duplicates, crawled.cleaning.max_word) == (
        data,
        True,
        99,
    )


def test_cleaning_is_chosen_with_an_experiment() -> None:
    config = composed("data/cleaning=crawled")
    assert (config.name, config.data.cleaning.max_copied) == ("quickstart", 0.6)
    assert composed("experiment=multi30k", "data/cleaning=crawled").data.cleaning.drop_unequal_numbers


@pytest.mark.parametrize("name", ["update-300", "00000300", "300"])
def test_a_checkpoint_to_go_back_to_is_text(name: str) -> None:
    assert composed(f"resume_from={name}").resume_from == name


@pytest.mark.parametrize("overrides", [[], ["experiment=multi30k"], ["data=wmt14_de_en"]])
def test_elsewhere_the_best_candidate_is_delivered(overrides: list[str]) -> None:
    assert composed(*overrides).training.averaging.kind.name == "auto"


@pytest.mark.parametrize(
    ("name", "layers", "width", "updates", "dropout", "averaged"),
    [
        ("wmt14_en_de_base", 6, 512, 100_000, 0.1, 5),
        ("wmt14_en_de_big", 6, 1024, 300_000, 0.3, 20),
        ("wmt14_en_fr_base", 6, 512, 100_000, 0.1, 5),
        ("wmt14_en_fr_big", 6, 1024, 300_000, 0.1, 20),
    ],
)
def test_the_papers_systems(
    name: str, layers: int, width: int, updates: int, dropout: float, averaged: int
) -> None:
    config = composed(f"experiment={name}")
    assert (config.model.encoder_layers, config.model.d_model, config.model.dropout) == (
        layers,
        width,
        dropout,
    )
    assert config.model.norm.name == "post"
    training = config.training
    assert training.averaging.kind.name == "last"
    assert (training.max_updates, training.averaging.count, training.label_smoothing) == (
        updates,
        averaged,
        0.1,
    )
    assert (training.schedule.name, training.schedule.warmup_updates) == ("noam", 4000)
    assert (training.optimizer.beta2, training.optimizer.epsilon) == (0.98, 1e-9)
    assert config.data.max_tokens * training.micro_batches == 25_000
    assert (config.decoding.beam_size, config.decoding.length_penalty) == (4, 0.6)
    assert config.data.tokenizer.vocab_size == (37_000 if "en_de" in name else 32_000)
    assert (config.data.source_lang, config.data.target_lang) == ("en", "de" if "en_de" in name else "fr")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.d_modl=3", "model.d_modl: there is no such option. Did you mean model.d_model?"),
        ("cleanin=x", "cleanin: there is no such option. Did you mean data.cleaning?"),
        ("foo=1", "foo: there is no such option. --help lists all."),
        ("+data.foo=2", "+data.foo: there is no such option. --help lists all."),
        ("model.d_model=x", "model.d_model: must be a whole number, not x."),
        ("model.norm=mid", "model.norm: invalid value 'mid', expected one of [post, pre]"),
        (
            "experiment=foo",
            "experiment=foo: there is no such experiment. --help lists all. The names are multi30k",
        ),
        ("model=bas", "model=bas: there is no such model. Did you mean model=base? The names are base, big"),
        ("data.max_tokens=big", "data.max_tokens=big: must be auto or a number of tokens"),
        ("foo", "foo: options are written key=value"),
        ("seed=[a", "seed=[a: can't be parsed"),
        ("seed=1,2", "seed=1,2: has several values. Add -m"),
        ("seed=null", "seed: field 'seed' is not Optional"),
        ("run_dir=${foo}", "run_dir: interpolation key 'foo' not found"),
        (
            "+data.train.corpora.back.sorce=x",
            "data.train.corpora.back.sorce: there is no such option. Did you mean data.train.corpora.back.so",
        ),
        (
            "+data.train.corpora.back.cleaning.max_rato=3",
            "data.train.corpora.back.cleaning.max_rato: there is no such option. The options are max_pieces",
        ),
        ("data.train.corpora.back.weight=x", "data.train.corpora.back.weight: must be a number, not x."),
        ("+data.valid.corpora.a.source=x", "+data.valid.corpora: there is no such option"),
        ("decoding.processors.a=3", "decoding.processors.a: is a section or a list. Give its options one"),
        (
            "training.averaging=[a,b]",
            "training.averaging: is a section or a list. Give its options one by one. Weights are",
        ),
        ("decoding.processors=a", "decoding.processors: is a section or a list. Give its options one by one"),
        ("decoding.processors.a.b.c=3", "+decoding.processors.a.b.c: there is no such option"),
        ("training.schedule.nam=x", "training.schedule.nam: there is no such option. Did you mean"),
        ("prepare_only=2", "prepare_only=2: must be true or false."),
        ("+data.cleaning={drop_leaked:2}", "data.cleaning.drop_leaked=2: must be true or false"),
    ],
)
def test_mistakes_are_told_in_one_line(override: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        composed(override)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_corpora_by_name_with_or_without_a_plus() -> None:
    config = composed(
        *LOCAL,
        "+data.train.corpora.back.source=bt.en",
        "+data.train.corpora.back.target=[bt.de]",
        "data.train.corpora.back.tag='<bt>'",
        "data.train.corpora.back.cleaning.max_ratio=3",
        "++data.train.corpora.ep={split: train, weight: 1, hub: {path: 'a/b'}}",
        "data.train.corpora.ep.weight=0.5",
        "data.train.corpora={un: {path: x.tsv}}",
    )
    assert config.data.train.corpora == {
        "back": CorpusConfig(source="bt.en", target=["bt.de"], tag="<bt>", cleaning={"max_ratio": 3}),
        "ep": CorpusConfig(split="train", weight=0.5, hub=HubConfig(path="a/b")),
        "un": CorpusConfig(path="x.tsv"),
    }
    assert from_yaml(TrainConfig, to_yaml(config), "here") == config
    assert list(from_yaml(TrainConfig, to_yaml(config), "here").data.train.corpora) == ["back", "ep", "un"]


def test_corpora_in_a_file_and_more_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/mine.yaml").write_text(
        "name: mine\nsource_lang: en\ntarget_lang: de\n"
        "train: {corpora: {ep: {source: a, target: b, cleaning: {max_pieces: 9}}}}\n"
    )
    overrides = ("data=mine", "data.train.corpora.ep.cleaning.max_ratio=2", "+data.train.corpora.bt.path=c")
    (job,) = compose_jobs(TrainConfig, "train", Arguments(overrides, config_dir=str(tmp_path)))
    assert job.data.train.corpora == {
        "ep": CorpusConfig(source="a", target="b", cleaning={"max_pieces": 9, "max_ratio": 2}),
        "bt": CorpusConfig(path="c"),
    }


def test_a_model_translates_as_it_was_tested_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "config.yaml").write_text("decoding:\n  beam_size: 7\n  length_penalty: 1.5\n")
    overrides = (f"model_dir={tmp_path}", "decoding.length_penalty=0.2")
    (job,) = compose_jobs(EvalConfig, "eval", Arguments(overrides))
    assert (job.decoding.beam_size, job.decoding.length_penalty) == (7, 0.2)


def processors_of(tmp_path: Path, stored: str, *overrides: str) -> dict[str, dict[str, Any] | None]:
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.yaml").write_text(f"decoding:\n  beam_size: 7\n{stored}")
    (job,) = compose_jobs(TranslateConfig, "translate", Arguments((f"model_dir={tmp_path}", *overrides)))
    assert job.decoding.beam_size == 7
    return job.decoding.processors


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), {"a": {"strength": 2.5, "words": "x, =y"}, "b": {}}),
        (("decoding.processors.a.strength=3",), {"a": {"strength": 3, "words": "x, =y"}, "b": {}}),
        (("decoding.processors.c={}",), {"a": {"strength": 2.5, "words": "x, =y"}, "b": {}, "c": {}}),
        (("decoding.processors.a=null",), {"a": None, "b": {}}),
        (("decoding.processors={}",), {}),
        (("decoding.processors={}", "decoding.processors.c.x=true"), {"c": {"x": True}}),
        (("decoding.processors={a: {strength: 1}}",), {"a": {"strength": 1, "words": "x, =y"}, "b": {}}),
    ],
)
def test_a_model_keeps_its_processors_unless_told_otherwise(
    overrides: tuple[str, ...], expected: dict[str, Any], tmp_path: Path
) -> None:
    stored = "  processors:\n    a: {strength: 2.5, words: 'x, =y'}\n    b: {}\n"
    found = processors_of(tmp_path, stored, *overrides)
    assert found == expected and list(found) == list(expected)


def test_models_of_earlier_versions_have_no_processors(tmp_path: Path) -> None:
    assert processors_of(tmp_path, "") == {}
    assert processors_of(tmp_path, "", "decoding.processors.a={}") == {"a": {}}


@pytest.mark.parametrize(
    ("stored", "line"),
    [
        ("  processors: {a: {b: '${oc.env:HOME}'}}\n", "decoding.processors: ${ begins an interpolation."),
        ("  processors: {a: 3}\n", "decoding.processors.a=3: must be a mapping"),
        ("  processors: [a]\n", "decoding.processors=['a']: must be a mapping"),
    ],
)
def test_wrong_processors_of_a_model_are_one_line(stored: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        processors_of(tmp_path, stored)
    assert str(caught.value).startswith(f"{tmp_path / 'config.yaml'}: {line}")


def test_names_and_options_of_plugins_are_stored() -> None:
    config = composed(
        "plugins=[a]",
        "training.schedule.name=cosine",
        "training.schedule.options.cycles=0.5",
        "training.optimizer.name=momentum",
        "training.optimizer.options={momentum: 0.5}",
        "decoding.processors.penalty.strength=2",
    )
    assert from_yaml(TrainConfig, to_yaml(config), "here") == config
    assert (config.training.schedule.name, config.training.schedule.options) == ("cosine", {"cycles": 0.5})
    assert config.training.optimizer.options == {"momentum": 0.5}
    assert config.decoding.processors == {"penalty": {"strength": 2}}


def test_configurations_of_earlier_versions_are_read() -> None:
    old = composed("training.schedule.name=linear", "training.optimizer.name=adamw")
    lines = to_yaml(old).splitlines()
    lines = [line for line in lines if line.strip() not in ("options: {}", "processors: {}")]
    text = "\n".join(lines)
    assert "    options:" not in text and "    name: linear" in lines and "    name: adamw" in lines
    assert from_yaml(TrainConfig, text, "here") == old


def test_a_model_is_evaluated_on_other_data() -> None:
    overrides = ("data=quickstart", "data.max_tokens=512", "data.test.tag='<2de>'")
    (job,) = compose_jobs(EvalConfig, "eval", Arguments(overrides))
    assert job.data is not None
    assert (job.data.name, job.data.max_tokens, job.data.test.tag) == ("quickstart", 512, "<2de>")


def test_a_folder_of_files_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        compose_jobs(TrainConfig, "train", Arguments(config_dir=str(tmp_path / "none")))


def test_arguments() -> None:
    assert read_arguments(["a=1", "-m", "--config-dir", "x"]) == Arguments(
        ("a=1",), sweep=True, config_dir="x"
    )
    assert read_arguments(["--config-dir=x", "--cfg", "job"]) == Arguments(show=True, config_dir="x")
    assert read_arguments(["-h"]).help and read_arguments(["--version"]).version
    for wrong, words in (
        (["--foo"], "--foo: is not a flag"),
        (["--config-dir"], "has no value. Give the name of a folder"),
    ):
        with pytest.raises(UserError, match=words):
            read_arguments(wrong)


def test_a_models_own_decoding_is_found_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "model.safetensors").touch()
    (folder / "config.yaml").write_text("decoding:\n  beam_size: 7\n")
    monkeypatch.setenv("RUNS", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("${oc.env:RUNS}/mine", str(folder)):
        (job,) = compose_jobs(TranslateConfig, "translate", Arguments((f"model_dir='{name}'",)))
        assert job.decoding.beam_size == 7
    (job,) = compose_jobs(TranslateConfig, "translate", Arguments(("model_dir='~/mine'",)))
    assert job.decoding.beam_size == 7
    with pytest.raises(UserError, match="^model_dir=\\$\\{oc.env:NONE\\}: "):
        compose_jobs(TranslateConfig, "translate", Arguments(("model_dir='${oc.env:NONE}'",)))


@pytest.mark.parametrize(
    ("decoding", "words"),
    [
        ("beam_size: ${oc.env:SECRET}", "decoding.beam_size=${oc.env:SECRET}: must be a whole number"),
        ("beam_size: '4 output=x'", "decoding.beam_size=4 output=x: must be a whole number"),
        ("beam_size: [4, 5]", "decoding.beam_size=[4, 5]: must be a whole number"),
        ("beam_size: 'range(1,9)'", "decoding.beam_size=range(1,9): must be a whole number"),
        ("length_penalty: choice(1,2)", "decoding.length_penalty=choice(1,2): must be a number"),
        ("'beam_size=3,output': 1", "decoding.beam_size=3,output: this version of nmt has no such option"),
        ("'beam_size: 4'", "decoding=beam_size: 4: must be a section of options"),
        ("beam_size: &a 4", "is damaged: line 2: anchors and aliases"),
        ("beam_size: 0", "decoding.beam_size=0: must be between 1 and 1,000"),
    ],
)
def test_a_model_s_decoding_options_are_data(
    decoding: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "12345")
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.yaml").write_text(f"decoding:\n  {decoding}\n")
    with pytest.raises(UserError) as caught:
        compose_jobs(TranslateConfig, "translate", Arguments((f"model_dir={tmp_path}",)))
    assert str(caught.value).startswith(f"{tmp_path}/config.yaml: {words}")


def test_options_of_decoding_are_changed_as_on_a_command_line() -> None:
    stored = DecodingConfig(beam_size=7, max_tokens=99)
    assert changed_decoding(stored, {}) == stored
    processors: Any = {
        "one": {"size": 6, "text": "it's a: {b}, c\\d\\", "share": 0.5, "none": None, "many": [1, 2]},
        "two": None,
        "three": {},
    }
    assert changed_decoding(stored, {"processors": processors}).processors == processors
    changed = changed_decoding(stored, {"nbest": 2, "length_penalty": 1, "max_length_factor": "1.5"})
    assert changed == DecodingConfig(7, 1.0, nbest=2, max_length_factor=1.5, max_tokens=99)
    numpy_values = {"length_penalty": np.float64(0.5), "processors": {"one": {"share": np.float64(0.5)}}}
    assert changed_decoding(stored, numpy_values).length_penalty == 0.5
    with pytest.raises(UserError, match=r"decoding.beam_sise: there is no such option. Did you mean d"):
        changed_decoding(stored, {"beam_sise": 3})
    with pytest.raises(UserError, match="decoding.nbest=8: is more than decoding.beam_size=7"):
        changed_decoding(stored, {"nbest": 8})
    with pytest.raises(UserError, match="has several values. Add -m for a sweep"):
        changed_decoding(stored, {"nbest": "1,2"})


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """The files of a model folder that are read before training."""
    config = composed(
        *(*LOCAL, "model=tiny", "model.norm=pre", "model.dropout=0.4", "model.output_bias=true"),
        *("model/positions=relative", "model.positions.options.clip=7"),
    )
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    (tmp_path / "model.safetensors").touch()
    return tmp_path


def test_a_warm_start_has_the_options_of_its_model_except_for_dropout(start: Path) -> None:
    there = from_yaml(TrainConfig, (start / "config.yaml").read_text(), "there").model
    config = composed(*LOCAL, f"start_from={start}")
    assert config.model == replace(there, dropout=0.1) and there.d_model == 128
    assert composed(*LOCAL, f"start_from={start}", "model.dropout=0.2").model == replace(there, dropout=0.2)
    experiment = composed("experiment=multi30k", f"start_from={start}").model
    assert experiment == replace(there, dropout=0.25)


def test_a_run_whose_start_is_gone_has_its_own_options(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = composed(*LOCAL, f"start_from={start}").model
    gone = f"start_from={tmp_path / 'gone'}"
    assert composed(*LOCAL, gone, f"run_dir={start}").model == there
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/local").symlink_to(start)
    monkeypatch.chdir(tmp_path)
    assert composed(*LOCAL, gone).model == there
    assert composed(*LOCAL, gone, "run_dir=runs/other").model == composed(*LOCAL).model


def test_given_options_of_the_model_win_over_those_of_the_start(start: Path) -> None:
    assert composed(*LOCAL, f"start_from={start}", "model.norm=post").model.norm is Norm.post
    assert composed(*LOCAL, f"start_from={start}", "model=small").model.d_model == 512
    rotary = composed(*LOCAL, f"start_from={start}", "model/positions=rotary").model
    assert (rotary.positions.name, rotary.positions.options, rotary.d_model) == (
        "rotary",
        {"base": 10000},
        128,
    )
    nine = composed(*LOCAL, f"start_from={start}", "model.positions.options.clip=9").model
    assert (nine.positions.name, nine.positions.options["clip"], nine.norm) == ("relative", 9, Norm.pre)


def test_a_warm_start_translates_as_its_model_was_tested(start: Path, tmp_path: Path) -> None:
    changes = ("decoding.length_penalty=1.1", "decoding.beam_size=7", "decoding.retry_loops=auto")
    there = composed(*LOCAL, *changes)
    (start / "config.yaml").write_text(to_yaml(there))
    assert composed(*LOCAL, f"start_from={start}").decoding == there.decoding
    assert composed(*LOCAL, "model=tiny", f"start_from={start}").decoding == there.decoding
    given = composed(*LOCAL, f"start_from={start}", "decoding.beam_size=2").decoding
    assert given == replace(there.decoding, beam_size=2)
    experiment = composed("experiment=multi30k", f"start_from={start}").decoding
    assert experiment == composed("experiment=multi30k").decoding != there.decoding
    gone = composed(*LOCAL, f"start_from={tmp_path / 'gone'}", f"run_dir={start}")
    assert gone.decoding == there.decoding


def test_without_a_model_in_it_the_options_are_the_defaults(tmp_path: Path) -> None:
    assert composed(*LOCAL, f"start_from={tmp_path}").model == composed(*LOCAL).model


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), {"source": "nmt_nfkc", "target": "identity"}),
        (("target=nfc",), {"source": "nmt_nfkc", "target": "nfc"}),
        (("={target: nfc}",), {"source": "nmt_nfkc", "target": "nfc"}),
        (("=nfkc",), "nfkc"),
        (("=nfkc", "={source: nfkc, target: nfc}"), {"source": "nfkc", "target": "nfc"}),
    ],
)
def test_both_forms_of_the_normalisation(overrides: tuple[str, ...], expected: Any) -> None:
    key = "data.tokenizer.normalization"
    written = [f"{key}{one}" if one.startswith("=") else f"{key}.{one}" for one in overrides]
    options = composed(*LOCAL, "data.name=x", *written).data.tokenizer
    assert options.normalization == expected
    stored = from_yaml(TrainConfig, to_yaml(composed(*LOCAL, "data.name=x", *written)), "file")
    assert stored.data.tokenizer == options


def test_a_side_on_top_of_one_name_for_both_is_refused() -> None:
    key = "data.tokenizer.normalization"
    with pytest.raises(UserError) as caught:
        composed(f"{key}=nfkc", f"{key}.target=nfc")
    assert str(caught.value) == (
        f"{key}.target=nfc: {key}=nfkc is for both sides. Give '{key}={{source: ..., target: ...}}'."
    )
