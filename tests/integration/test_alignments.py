"""Word alignments through real commands: the heads that training chose, the file of links, the interface."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Toy
from toy import toy_config

import nmt
from nmt.bundle import load_bundle
from nmt.config import ScheduleConfig, Shift, TokenizerConfig
from nmt.copying.translation import Links
from nmt.decoding.alignment import AlignmentHeads
from nmt.decoding.head_choice import HeadChoice
from nmt.decoding.pairs import PairReader
from nmt.runtime.checksums import SUMS, file_sum, read_sums
from nmt.training.run import train

SYMBOLS = "abcdefghijklmnop"


def links_of(line: str) -> list[tuple[int, int]]:
    return [(int(source), int(target)) for source, target in (link.split("-") for link in line.split())]


@pytest.mark.slow
def test_the_file_of_links(toy: Toy, trained: Path, tmp_path: Path) -> None:
    """A line of links for each output line, with n-best lists, samples, workers and an ensemble too."""
    text = "ba de\n\nki  lo\tmu \n \nba\n"
    for number, options in enumerate(
        (
            ["scores=true"],
            ["decoding.nbest=2"],
            ["decoding.samples=3", "decoding.alignment_shift=predicting"],
            ["decoding.workers=2", "decoding.max_sentences=1"],
            [f"model_dir=[{trained},{trained}]", "decoding.alignment_heads=[[0,1],[0,0]]"],
        )
    ):
        path = tmp_path / f"links-{number}"
        result = toy.run("nmt-translate", f"model_dir={trained}", f"alignments={path}", *options, text=text)
        plain = toy.run("nmt-translate", f"model_dir={trained}", *options, text=text)
        assert result.returncode == 0, result.stderr.decode()
        assert result.stdout == plain.stdout
        columns = 2 if "nbest" in options[0] or "samples" in options[0] else int("scores=true" in options)
        texts = [line.split("\t", columns)[-1] for line in result.stdout.decode().split("\n")]
        lines = path.read_text(encoding="utf-8").split("\n")
        assert len(lines) == len(texts)
        sources = text.split("\n")[:-1]
        each = (len(lines) - 1) // len(sources)
        for place, (line, translation) in enumerate(zip(lines[:-1], texts, strict=False)):
            links, words = links_of(line), sources[place // each].split()
            assert [target for _, target in links] == list(range(len(translation.split()) if words else 0))
            assert all(0 <= source < len(words) for source, _ in links)


def test_wrong_uses(toy: Toy, trained: Path, tmp_path: Path) -> None:
    model = f"model_dir={trained}"
    for options, message in (
        (["alignments=test.src", "input=test.src"], "alignments=test.src: is also the input"),
        ([f"alignments={tmp_path}/x", f"output={tmp_path}/x"], "is also the output. Give another name."),
        (
            ["alignments=true"],
            "alignments=true: must name a file. Give a name, or ./true ",
        ),
        (["alignments=none/x"], "alignments=none/x: "),
    ):
        assert message in toy.refused("nmt-translate", model, *options, text="ba\n")
    assert not (toy.folder / "x").exists()


@pytest.fixture(scope="module")
def reversal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt to reverse random symbols; each is a word and, after the first, one piece."""
    folder, chance = tmp_path_factory.mktemp("reversal"), random.Random(5)
    for split, count in (("train", 6000), ("valid", 100), ("test", 100)):
        lines = [chance.choices(SYMBOLS, k=chance.randint(2, 10)) for _ in range(count)]
        for ending, sides in (("src", lines), ("tgt", [line[::-1] for line in lines])):
            text = "".join(f"{' '.join(side)}\n" for side in sides)
            (folder / f"{split}.{ending}").write_text(text, encoding="utf-8")
    config = toy_config(
        folder,
        folder / "run",
        dropout=0.0,
        max_tokens=1000,
        max_updates=500,
        validate_every=500,
        checkpoint_every=500,
        schedule=ScheduleConfig(name="linear", peak=4e-3, warmup_updates=100),
        label_smoothing=0.0,
    )
    config.data.tokenizer = TokenizerConfig(vocab_size=320)
    config.data.cleaning.drop_identical = False
    train(config)
    return folder


@pytest.mark.slow
def test_a_model_that_reverses_aligns_in_reverse(reversal: Path) -> None:
    model = nmt.load(reversal / "run", device="cpu", threads=1)
    lines = (reversal / "test.src").read_text(encoding="utf-8").split("\n")[:-1]
    found = [best for best, *_ in model.translate_nbest(lines, alignments=True)]
    right = [one.text == " ".join(line.split()[::-1]) for line, one in zip(lines, found, strict=True)]
    assert sum(right) > 0.95 * len(lines)
    total = agreed = 0
    for line, one in zip(lines, found, strict=True):
        count = len(line.split())
        total += len(one.text.split())
        agreed += sum(source == count - 1 - target for source, target in one.alignment)
    assert agreed >= 0.95 * total

    aligned = model.align(zip(lines, (one.text for one in found), strict=True))
    assert aligned == [one.alignment for one in found]


@pytest.mark.slow
def test_the_analysis_names_a_system_that_translates_other_sentences(
    reversal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The links of given texts are set: none of another sentence, all of a reference.

    A model that only reverses finds its source words by their places, so whether it aligns the words of
    another sentence too depends on how its training rounds.
    """
    sources, references = (
        (reversal / f"test.{end}").read_text(encoding="utf-8").split("\n")[:-1] for end in ("src", "tgt")
    )
    others = references[1:] + references[:1]

    def links(reader: PairReader, pairs: Sequence[tuple[str, str]]) -> list[Links]:
        return [
            () if target == other else tuple((0, word) for word in range(len(target.split())))
            for (_, target), other in zip(pairs, others, strict=True)
        ]

    monkeypatch.setattr(PairReader, "align", links)
    report = nmt.evaluate(
        model_dir=reversal / "run",
        sources=sources,
        references=references,
        baseline=others,
        overrides=["analysis=true", "device=cpu", "threads=1"],
    )
    assert report.analysis is not None
    unaligned, of_baseline = (
        signs["unaligned"] for signs in (report.analysis.signs, report.analysis.baseline_signs)
    )
    longer = [row for row, line in enumerate(others) if len(line.split()) >= 5]
    assert (unaligned.hypotheses, unaligned.is_fault) == (0, False)
    assert (of_baseline.hypotheses, of_baseline.rows, of_baseline.references) == (len(longer), longer, 0)
    assert of_baseline.is_fault


@pytest.mark.slow
def test_the_choice_is_stored(reversal: Path, tmp_path: Path) -> None:
    results = json.loads((reversal / "run/results.json").read_text(encoding="utf-8"))
    section = results["alignment"]
    assert section["agreement"] >= max(section["default_agreement"], 0.95)
    assert section["links"] > 100 and section["shift"] in ("predicting", "reading")
    assert load_bundle(reversal / "run").results["alignment"] == section
    model = reversal / "run/model"
    sums = read_sums(model)
    assert sums is not None and sums["results.json"] == file_sum(model / "results.json")

    old = Path(shutil.copytree(model, tmp_path / "old"))  # a folder of an earlier version
    del results["alignment"]
    (old / "results.json").write_text(json.dumps(results), encoding="utf-8")
    (old / SUMS).unlink()
    loaded = nmt.load(old, device="cpu", threads=1)
    [[best]] = loaded.translate_nbest(["a b c"], alignments=True)
    assert best.alignment
    pairs = [
        (line, " ".join(line.split()[::-1]))
        for line in (reversal / "train.src").read_text(encoding="utf-8").split("\n")[:800]
    ]
    choice = loaded.choose_alignment_heads(pairs)
    assert choice.agreement >= 0.95
    values = choice.as_dict()
    options = {"alignment_heads": values["heads"], "alignment_shift": values["shift"]}
    [[best]] = loaded.translate_nbest(["a b c"], alignments=True, **options)
    assert best.alignment == ((2, 0), (1, 1), (0, 2))


def test_the_final_scores_use_the_chosen_heads(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They place strings that the model does not know, so nmt-eval computes the same scores.

    The scores before a fine-tuning use those of the model that it begins with.
    """
    sources = (data / "valid.src").read_text(encoding="utf-8").split("\n")[:-1]
    lines = [line.replace(" ", " {name} ", 2) for line in sources]
    folder = Path(shutil.copytree(data, tmp_path / "data"))
    (folder / "valid.src").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    choice = HeadChoice(AlignmentHeads(((0, 1),), Shift.reading), 1.0, 0.5, 10)
    monkeypatch.setattr("nmt.decoding.torch_searcher.choose_heads", lambda *pairs: choice)
    train(toy_config(folder, tmp_path / "run", max_updates=120, validate_every=120, checkpoint_every=120))
    model = nmt.load(tmp_path / "run", device="cpu", threads=1)
    translations = (tmp_path / "run/valid.hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert translations == model.translate(lines)
    assert translations != model.translate(
        lines, alignment_heads=[[0, 0], [0, 1], [0, 2], [0, 3]], alignment_shift="predicting"
    )

    monkeypatch.setattr("nmt.decoding.torch_searcher.choose_heads", lambda *pairs: None)
    tuned = toy_config(folder, tmp_path / "tuned", max_updates=1)
    train(replace(tuned, start_from=str(tmp_path / "run")))
    before = (tmp_path / "tuned/valid.before.hypotheses.txt").read_text(encoding="utf-8")
    assert before.split("\n")[:-1] == translations
