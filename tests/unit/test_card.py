"""Model cards: what the library of the hub and a reader of Markdown find in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from huggingface_hub import ModelCard

from nmt.card import Subject, bundle_card, export_card
from nmt.config import (
    CorpusConfig,
    DataConfig,
    HubConfig,
    SplitConfig,
    TokenizerConfig,
    TrainConfig,
    TrainSplitConfig,
)
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.errors import UserError

SIDES = {
    "source": SimpleNamespace(rule="nmt_nfkc", size=8000),
    "target": SimpleNamespace(rule="identity", size=7000),
}
TOKENIZER = cast(Tokenizer, SimpleNamespace(source_symbols={}, **SIDES))
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
RESULTS: dict[str, Any] = {
    "test": {"bleu": 34.126, "signatures": {"bleu": SIGNATURE}, "sentences": 1000},
    "training": {
        **{"updates": 5000, "target_tokens": 1_234_567, "minutes": 61.26, "parameters": 12_345_678},
        **{"device": "NVIDIA H100", "cores": 16, "processes": 8, "precision": "bf16"},
        **{"torch": "2.13.0", "nmt": "0.1.0"},
    },
    "data": {
        "train": {"corpus": "a", "source": [{"name": "a.en", "sha256": "1" * 64}], "target": []},
        "test": {
            **{"corpus": "wmt/wmt14 de-en test", "sentences": 1000, "hub": "wmt/wmt14", "config": "de-en"},
            **{"split": "test", "revision": "b" * 40},
        },
        "cleaning": {"pairs": 29000, "kept": 28950, "dropped": {"length": 30, "duplicate": 20}},
    },
}


def config(source: str = "en", target: str = "de", **options: Any) -> TrainConfig:
    return TrainConfig(
        name="mine", data=DataConfig(name="mine", source_lang=source, target_lang=target), **options
    )


def subject(given: TrainConfig | None = None, results: Mapping[str, Any] = RESULTS) -> Subject:
    return Subject(given or config(), TOKENIZER, results)


def header(card: str) -> dict[str, Any]:
    _, text, _ = card.split("---\n", 2)
    return cast(dict[str, Any], yaml.safe_load(text))


def test_the_library_of_the_hub_reads_the_header() -> None:
    data = ModelCard(bundle_card(subject(config(licence="CC-BY-4.0")))).data
    assert (data.language, data.license, data.library_name) == (["en", "de"], "cc-by-4.0", "nmt")
    assert (data.pipeline_tag, data.datasets, data.metrics) == ("translation", ["wmt/wmt14"], ["bleu"])
    (result,) = data.eval_results
    assert (result.task_type, result.dataset_type, result.dataset_split) == (
        *("translation", "wmt/wmt14"),
        "test",
    )
    assert (result.metric_type, result.metric_value) == ("bleu", 34.13)
    assert result.metric_args == {"signature": SIGNATURE}


def test_the_text_has_the_recorded_facts() -> None:
    text = bundle_card(subject(config(licence="mit")), "hf://me/mine")
    for part in (
        "nmt-translate model_dir=hf://me/mine input=news.en output=news.de\n",
        'model = nmt.load("hf://me/mine")\n',
        "12,345,678 parameters, 8,000 source and 7,000 target pieces.",
        "the source by `nmt_nfkc`, the target by `identity`.",
        f"| test | 1,000 | `bleu` | 34.13 | `{SIGNATURE}` |".replace(
            SIGNATURE, SIGNATURE.replace("|", "\\|")
        ),
        f"| train | 29,000 | `a.en` | `{'1' * 64}` |",
        f"| test | 1,000 | `wmt/wmt14 de-en test` | revision `{'b' * 40}` |",
        "Cleaning retained 28,950 of 29,000 training pairs; it dropped 30 by `length`, 20 by `duplicate`.",
        "5,000 updates, 1,234,567 target tokens, 61.3 minutes, validation included.",
        "`NVIDIA H100`, `16` CPU cores, processes: `8`, precision `bf16`, torch `2.13.0`, nmt `0.1.0`.",
        "A source has at most 1,024 pieces",
        "## Licence\n\n`mit`",
    ):
        assert part in text, part


def test_a_model_without_facts_or_licence() -> None:
    text = bundle_card(subject(results={}))
    assert "license" not in header(text) and "model-index" not in header(text)
    assert text.count("None are recorded.") == 1 and "The author has not stated one." in text
    assert "## Data" not in text and "updates" not in text.split("```yaml")[0]


def test_an_imported_model() -> None:
    origin = {"nmt": "0.1.0", "format": "marian", "model": "/home/me/opus-mt-en-de/"}
    text = bundle_card(subject(results={"import": origin}))
    assert "Imported by nmt `0.1.0` from `opus-mt-en-de`, a model of the format `marian`." in text
    assert "/home" not in text
    hub = bundle_card(subject(results={"import": origin | {"model": f"hf://o/n@{'a' * 40}"}}))
    assert f"from `hf://o/n@{'a' * 40}`, a model" in hub


def test_a_licence_that_the_hub_does_not_know() -> None:
    found = header(bundle_card(subject(config(licence="MyOwn-1.0"))))
    assert (found["license"], found["license_name"]) == ("other", "MyOwn-1.0")
    for wrong in ("CC BY 4.0", "", "a\nb: c", "-x"):
        with pytest.raises(UserError, match=r"(?s)^licence=.*: is not an identifier\. Give one such as"):
            config(licence=wrong)


@pytest.mark.parametrize(
    ("source", "target", "languages", "complete"),
    [
        ("no", "en", ["no", "en"], None),  # YAML reads a bare `no` as false
        ("zh-Hans", "pt_BR", ["zh", "pt"], ["zh-Hans", "pt-BR"]),
        ("EN", "deu", ["en", "de"], None),
        ("zho_Hans", "uz_Cyrl", ["zh", "uz"], ["zh-Hans", "uz-Cyrl"]),
        ("iw", "xx_YY", ["he", "xx"], ["he", "xx-YY"]),
        ("en", "en", ["en"], None),
    ],
)
def test_codes_of_languages(
    source: str, target: str, languages: list[str], complete: list[str] | None
) -> None:
    found = header(bundle_card(subject(config(source, target))))
    assert found["language"] == languages
    assert found.get("language_bcp47") == complete


def test_several_pairs_of_languages() -> None:
    given = config()
    given.data.train = TrainSplitConfig(
        corpora={"one": CorpusConfig(source="a", target="b"), "two": CorpusConfig(target_lang="fr")}
    )
    facts = {"corpora": {"one": {"cleaning": {"pairs": 7}, "source": [{"name": "a"}]}}}
    text = bundle_card(subject(given, {"data": {"train": facts}}))
    assert header(text)["language"] == ["en", "de", "fr"]
    assert "Pairs of languages: `en` to `de`, `en` to `fr`." in text
    assert "| train `one` | 7 | `a` | `None` |" in text


def test_folders_of_the_author_are_not_in_the_card() -> None:
    given = config(run_dir="/home/me/secret/run", start_from=f"hf://o/n@{'a' * 40}")
    given.data.valid = SplitConfig(source="/home/me/valid.en", target=["/home/me/valid.de"])
    given.data.cache_dir, given.data.hub = "/home/me/cache", HubConfig("wmt/wmt14")
    given.data.tokenizer = TokenizerConfig(path="/home/me/secret/")
    given.evaluation.comet.command = ["/home/me/comet-score", "--gpus", "0"]
    text = bundle_card(subject(given))
    assert "/home" not in text
    options = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    assert options["start_from"] == f"hf://o/n@{'a' * 40}"
    assert options["data"] == {
        **{"name": "mine", "source_lang": "en", "target_lang": "de", "hub": {"path": "wmt/wmt14"}},
        **{"valid": {"source": "valid.en", "target": ["valid.de"]}, "tokenizer": {"path": "secret"}},
    }
    assert options["evaluation"]["comet"]["command"] == ["comet-score", "--gpus", "0"]


HOSTILE = "a|b`c``d\n---\n# <script>*x*</script>\x1b[31m"


def test_text_of_strangers_is_code() -> None:
    results = {
        "test": {HOSTILE: 1.0, "signatures": {HOSTILE: HOSTILE}, "sentences": "many"},
        "data": {
            "train": {"source": [{"name": HOSTILE, "sha256": HOSTILE}, 7], "target": HOSTILE},
            "cleaning": {"pairs": 3, "kept": 2, "dropped": {HOSTILE: 1, "x": HOSTILE}},
        },
        "training": {"updates": 1, "target_tokens": 1, "minutes": 1, "device": HOSTILE},
    }
    given = config()
    given.name = given.data.name = HOSTILE
    given.data.tokenizer.user_symbols = [HOSTILE, "```\n# x"]
    text = bundle_card(subject(given, results))
    header(text)
    body = text.split("---\n", 2)[2]
    assert "\x1b" not in body
    without_code = re.sub(r"(?s)(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", body)
    assert "script" not in without_code and "*x*" not in without_code
    headings = [line for line in without_code.splitlines() if line.startswith("#")]
    assert [line.strip("# ") for line in headings[1:]] == [
        *("Usage", "Scores", "Data", "Training", "Limits", "Licence")
    ]
    for row in (line for line in body.splitlines() if line.startswith("| t")):
        assert len(re.findall(r"(?<!\\)\|", row)) in (5, 6), row


@pytest.mark.parametrize(
    "damaged",
    [
        {"test": 7},
        {"data": []},
        {"training": "x"},
        {"test": {"signatures": 1}},
        {"test": {"bleu": 10**400, "signatures": {"bleu": "x"}}},
        {"training": {"updates": 1, "target_tokens": 1, "minutes": 10**400}},
    ],
)
def test_damaged_results_give_a_card_without_them(damaged: dict[str, Any]) -> None:
    assert "None are recorded." in bundle_card(subject(results=damaged))


def test_the_card_of_an_export_has_its_comparison() -> None:
    exact = {"sentences": 1000, "tokens": 33050, "largest_difference": 1.1e-5, "near_ties": 3}
    report = {"nmt": "0.1.0", "format": "ctranslate2", "quantization": "int8", "exact": exact}
    report |= {"compared_on": "a.en and a.de", "bleu": 35.04, "bleu_of_the_model": 35.15, "model": "hf://o/n"}
    text = export_card(subject(), report, "ctranslate2", "Use it.\n")
    assert header(text)["library_name"] == "ctranslate2"
    assert "Exported by nmt 0.1.0 to ctranslate2, int8 of `hf://o/n`." in text
    assert (
        "## Usage\n\nUse it.\n\n## Comparison with the model\n\nOn 1,000 sentences (`a.en and a.de`)" in text
    )
    assert "With int8, BLEU of greedy search on these sentences is 35.04; that of the model is 35.15." in text


def test_an_option_of_another_type_is_shown(tmp_path: Path) -> None:
    given = config()
    given.training = replace(given.training, max_updates=7)
    text = bundle_card(subject(given))
    assert yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])["training"] == {"max_updates": 7}


def test_named_sets_have_rows_and_entries() -> None:
    test: dict[str, Any] = {"bleu": 20.0, "signatures": {}, "sentences": 30, "sets": {}}
    facts: dict[str, Any] = {}
    for name, lang, bleu in (("news", "de", 30.0), ("ted", "zh", 10.0)):
        test["sets"][name] = {"bleu": bleu, "signatures": {"bleu": f"tok:{lang}"}, "sentences": 15}
        facts[name] = {
            "corpus": "a",
            "sentences": 15,
            "target_lang": lang,
            "files": [{"name": f"{name}.tsv"}],
        }
    results = {"test": test, "data": {"test": {"sets": facts}}}
    text = bundle_card(subject(results=results))
    assert "| test `news` | 15 | `bleu` | 30.00 | `tok:de` |" in text
    assert "| test `ted` | 15 | `ted.tsv` |" in text
    assert "20.00" not in text  # a mean has no signature
    entries = header(text)["model-index"][0]["results"]
    assert [
        (entry["task"]["name"], entry["dataset"]["name"], entry["metrics"][0]["value"]) for entry in entries
    ] == [
        ("Translation en-de", "news", 30.0),
        ("Translation en-zh", "ted", 10.0),
    ]
