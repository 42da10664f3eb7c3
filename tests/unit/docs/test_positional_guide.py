"""The numbers of the guide to positional encoding, in both languages: of the program and of the study."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from doc_pages import page
from position_experiments import captions, comparisons, tasks
from position_experiments.results import FILE, Record, chosen, over, read_results, score
from position_study import all_experiments
from torch import Tensor

from nmt.config import ModelConfig, TrainingConfig
from nmt.config.model import ENCODINGS
from nmt.model.attention import SCORES
from nmt.model.positions import POSITIONS, Places, Shape, SineOrder
from nmt.model.size import num_weights

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "docs" / name for name in ("positional_encoding.md", "positional_encoding.ko.md")]
TEXTS = [path.read_text(encoding="utf-8") for path in PAGES]
STUDY = read_results(ROOT / "docs" / FILE)
SCORES_OF_STUDY = ("scaled_dot", "dot")


def say(*numbers: str) -> None:
    """Both pages have these numbers."""
    for number in numbers:
        for path, text in zip(PAGES, TEXTS, strict=True):
            pattern = rf"(?<![\d.,]){re.escape(number)}(?![\d]|[.,]\d)"
            assert re.search(pattern, text), f"{path.name}: {number} is missing"


def codes(name: str, width: int, length: int, total: int | None = None, **options: Any) -> Tensor:
    """Returns what an encoding adds at the first positions of a sentence of `total` tokens, in float64."""
    kind = POSITIONS[name]
    torch.manual_seed(1)
    encoding = kind(kind.Options(**options), Shape(width, 1, 1, False, 1.0))
    places = Places(torch.arange(length), length, lambda: torch.full((length,), total or length))
    return encoding.embed(torch.zeros(length, width, dtype=torch.float64), places).detach()


def frequencies(width: int, base: float = 10_000) -> Tensor:
    """The frequency of each pair, in rad per position."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def shift_error(inputs: Tensor, outputs: Tensor) -> float:
    """The error of the best linear function of the rows of `inputs`, relative to `outputs`."""
    matrix = torch.linalg.lstsq(inputs, outputs, driver="gelsd", rcond=1e-9).solution
    return float((inputs @ matrix - outputs).norm() / outputs.norm())


def properties(name: str) -> list[bool]:
    """The columns of the table of candidates: computed for 100 positions in 64 dimensions."""
    width, length = 64, 100
    rows = codes(name, width, length)
    steps = (rows[1:] - rows[:-1]).norm(dim=1)
    larger = codes(name, width, 1000).norm(dim=1).max() > 2 * rows.norm(dim=1).max()
    return [
        len(rows.unique(dim=0)) == length,
        torch.equal(rows, codes(name, width, length, total=2 * length)),
        not larger,
        bool((rows[1:].norm(dim=1) < width**0.5).all()),
        bool(((steps - steps[0]).abs() < 1e-6).all()),
        shift_error(rows[:-3], rows[3:]) < 1e-3,
        bool((codes(name, width, 1000).unique(dim=0, return_counts=True)[1] == 1).all()),
    ]


@pytest.mark.parametrize("name", ["integer", "normalised", "binary", "sinusoidal"])
def test_the_table_of_candidates(name: str) -> None:
    computed = properties(name)
    for text, yes, no in zip(TEXTS, ("yes", "예"), ("**no**", "**아니요**"), strict=True):
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}`"))
        cells = [cell.strip() for cell in row.split("|")[2:-1]]
        assert len(cells) == 8 and cells[-1] == yes  # none of these has parameters
        for cell, value in zip(cells, computed, strict=False):
            assert cell.startswith(no) != value, (name, cells, computed)


def test_naive_encodings() -> None:
    integer = codes("integer", 64, 100)
    assert integer[99].norm() / 64**0.5 == pytest.approx(99)
    ones = torch.ones(99, 1, dtype=torch.float64)
    assert shift_error(torch.cat([integer[:-1], ones], 1), integer[1:]) < 1e-9  # affine
    assert shift_error(integer[:-1] * ones, integer[1:]) > 1e-3  # not linear
    bits = codes("binary", 64, 10)
    assert [int((bits[row] != bits[row + 1]).sum()) for row in (7, 8)] == [4, 1]
    steps = [codes("normalised", 64, length)[1, 0].item() for length in (10, 100)]
    assert steps == pytest.approx([0.1, 0.01])
    say("99", "0.1", "0.01")


def test_a_step_is_a_rotation() -> None:
    """The matrix of the guide turns the code of each position into that of the position k later."""
    rows, k = codes("sinusoidal", 512, 300), 7
    angles = frequencies(512) * k
    blocks = torch.stack([angles.cos(), angles.sin(), -angles.sin(), angles.cos()], 1).view(-1, 2, 2)
    rotation = torch.block_diag(*blocks)
    assert torch.allclose(rotation @ rows[:-k].T, rows[k:].T, atol=1e-5)
    assert rows[1, 0] > rows[0, 0] and rows[1, 1] < rows[0, 1]  # counterclockwise, cosines horizontal
    assert torch.allclose(rotation @ rotation.T, torch.eye(512, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(rows.norm(dim=1), torch.tensor((512 / 2) ** 0.5, dtype=torch.float64))
    products = (frequencies(512) * torch.arange(100)[:, None]).cos().sum(1)
    for start in (0, 150):
        assert torch.allclose(rows[start : start + 100] @ rows[start], products, atol=1e-4)
        distances = (rows[start : start + 100] - rows[start]).square().sum(1)
        assert torch.allclose(distances, 512 - 2 * products, atol=1e-4)
    assert (products[1:] > products[:-1]).nonzero()[0].item() == 43
    say("43")


def test_five_positions_in_six_dimensions() -> None:
    rows = codes("sinusoidal", 6, 5)
    for values, number in (
        (rows.norm(dim=1), "1.7321"),
        ((rows[1:] - rows[:-1]).norm(dim=1), "0.9600"),
        ((rows[1:] * rows[:-1]).sum(1), "2.5392"),
        ((rows[2:] - rows[:-2]).norm(dim=1), "1.6855"),
    ):
        assert {f"{value:.4f}" for value in values.tolist()} == {number}
        say(number)


def test_sines_alone_have_no_linear_shift() -> None:
    """The fastest sine after a step of k, from itself, from all sines, and from all sines and cosines."""
    angles = torch.arange(1002, dtype=torch.float64)[:, None] * frequencies(64)
    sines, cosines = angles.sin(), angles.cos()
    for k, number in ((1, "0.84"), (2, "0.91")):
        outputs = sines[k:, :1]
        for inputs in (sines[:-k, :1], sines[:-k]):
            assert f"{shift_error(inputs, outputs):.2f}" == f"{abs(math.sin(k)):.2f}" == number
        assert shift_error(torch.cat([sines, cosines], 1)[:-k], outputs) < 1e-6
        say(number)


def test_a_curve_in_space_meets_itself() -> None:
    """Dimensions 2 to 4 of 8: two points coincide a whole turn apart, around a crest of the slow one."""
    fast, slow = frequencies(8)[1:3].tolist()
    crest, turn = math.pi / 2 / slow, 2 * math.pi / fast
    assert math.sin(slow * (crest - turn / 2)) == pytest.approx(math.sin(slow * (crest + turn / 2)))
    assert int(crest + turn / 2) == 188
    say("188")


def test_cosines_by_base() -> None:
    for base, expected in ((100, ("0.235", "0.311")), (10_000, ("0.616", "0.629"))):
        for width, number in zip((512, 64), expected, strict=True):
            rows = codes("sinusoidal", width, 2001, base=base)
            largest = (rows[20:] @ rows[0] / (width / 2)).max().item()
            assert f"{largest:.3f}" == number
            say(number)
    assert 2 * math.pi / frequencies(512, 100)[-1] < 628
    say("628")


def test_how_far_the_pairs_turn() -> None:
    turned = (100 * frequencies(512)).round(decimals=9)
    assert (turned > 2 * math.pi).nonzero().max() == 76
    assert (turned >= 0.1).nonzero().max() == 192
    assert (turned < 0.1).double().mean().item() == pytest.approx(0.25, abs=0.005)
    far = (100 * frequencies(512, 1e12)).round(decimals=9)
    assert (far < 0.1).double().mean().item() == pytest.approx(0.75, abs=0.005)
    first, last = frequencies(512)[[0, -1]].tolist()
    assert first == 1 and f"{last:.6f}" == "0.000104" and f"{1 / last:,.0f}" == "9,647"
    slowest = codes("sinusoidal", 512, 2, layout=SineOrder.tensor2tensor)[1, 255].asin().item()
    assert f"{100 * (last / slowest - 1):.1f}" == "3.7"
    say("76", "77", "192", "193", "255", "9,647", "0.000104", "3.7")


def test_often_confused() -> None:
    rows = codes("sinusoidal", 512, 3)
    assert f"{(rows[0] @ rows[1] / 256).item():.3f}" == "0.973"
    say("0.973")
    torch.manual_seed(1)
    q, k = torch.randn(2, 1, 1, 1000, 64, dtype=torch.float64)
    products = {name: SCORES[name](1, 64)(q, k).var().item() for name in ("dot", "scaled_dot")}
    assert products == pytest.approx({"dot": 64, "scaled_dot": 1}, rel=0.03)


def test_layouts_have_the_same_numbers() -> None:
    interleaved, halves = (
        codes("sinusoidal", 64, 50, layout=layout) for layout in (SineOrder.interleaved, SineOrder.halves)
    )
    assert torch.equal(torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], 1), halves)


def test_rotary_has_the_angles_of_a_head() -> None:
    kind = POSITIONS["rotary"]
    rotary = kind(kind.Options(), Shape(64, 4, 1, False, 0.25))
    vectors = torch.ones(1, 4, 16, dtype=torch.float64).expand(9, 4, 16)
    q, k = rotary.rotate(vectors, vectors, torch.arange(9))
    angles = torch.atan2(q[1, 0, 8:], q[1, 0, :8]) - math.pi / 4  # a vector of ones is at 45 degrees
    assert torch.allclose(angles, frequencies(16), atol=1e-6)
    assert (q[3, 0] @ k[1, 0]).item() == pytest.approx((q[8, 0] @ k[6, 0]).item(), abs=1e-5)


def of_study(**facts: Any) -> Record:
    """The record of the study with these facts."""
    (record,) = chosen(STUDY, **facts)
    return record


def test_gradient_ratios() -> None:
    """After training, less gradient passes scores that are not scaled; the guide names the widths."""
    ratios = {
        (name, width, when): of_study(score=name, key_width=width)["saturation"][when]["gradient"]
        for name in SCORES_OF_STUDY
        for width in comparisons.KEY_WIDTHS
        for when in ("untrained", "trained")
    }
    for width, when, numbers in (
        (256, "untrained", ("0.12", "2.83")),
        (256, "trained", ("0.57", "0.23")),
        (128, "trained", ("0.39", "0.26")),
        (16, "trained", ("1.15", "0.77")),
    ):
        assert tuple(f"{ratios[name, width, when]:.2f}" for name in SCORES_OF_STUDY) == numbers
        say(*numbers)
    assert "training.max_updates=600" in comparisons.WIDE
    say("600")
    scaled, plain = SCORES_OF_STUDY
    widths = comparisons.KEY_WIDTHS
    assert [w for w in widths if ratios[plain, w, "trained"] < ratios[scaled, w, "trained"]] == [16, 128, 256]


def test_models_that_sort_react_least_to_permutations() -> None:
    for encoding in set(ENCODINGS) - {"none"}:
        copy, reverse, sort = (
            max(each["permutation"] for each in chosen(STUDY, part="tasks", task=task, encoder=encoding))
            for task in ("copy", "reverse", "sort")
        )
        assert sort < min(copy, reverse), encoding


def test_minutes_of_the_study() -> None:
    """Two experiments at a time, those whose time is measured alone: 4 hours, as the script estimates.

    The other bases were trained later, on a busy machine.
    """
    assert {each["name"] for each in STUDY} == {each.name for each in all_experiments()}
    experiments = {each.name: each for each in all_experiments() if each.part != "bases"}
    shares = {name: 1 if each.alone else 2 for name, each in experiments.items()}
    minutes = sum(each["minutes"] / shares[each["name"]] for each in STUDY if each["part"] != "bases")
    assert f"{minutes:.0f}" == "227" and f"{minutes / 60:.0f}" == "4"
    estimate = sum(each.minutes / shares[name] for name, each in experiments.items())
    assert estimate == pytest.approx(minutes, rel=0.05)
    for name in ("README.md", "position_study.py"):
        assert "4 hours on two" in (ROOT / "scripts" / name).read_text(encoding="utf-8")
    assert "4 hours on two" in TEXTS[0] and "4시간" in TEXTS[1]


def test_captions_and_tasks_train_differently() -> None:
    lengths = [
        score("15-", "length_ratio", "forced")(each) for each in chosen(STUDY, part="captions", options=[])
    ]
    assert [f"{end(lengths):.2f}" for end in (min, max)] == ["1.09", "1.12"]
    assert {"training.label_smoothing=0", "model.dropout=0"} <= {*tasks.TRAINING, *tasks.MODEL}
    assert not any("norm" in option for option in (*tasks.MODEL, *captions.OPTIONS))
    of_captions = (ROOT / "configs" / "experiment" / "multi30k.yaml").read_text(encoding="utf-8")
    assert captions.OPTIONS[0] == "experiment=multi30k" and "label_smoothing" not in of_captions
    assert "norm: pre" in of_captions and "dropout: 0.25" in of_captions
    assert (ModelConfig().norm.value, TrainingConfig().label_smoothing) == ("post", 0.1)
    say("1.09", "1.12", "0.1", "0.25")


def test_probe_and_recurrence() -> None:
    known, none = (
        of_study(part="probe", encoder=name, residual=True)["probe"] for name in ("sinusoidal", "none")
    )
    assert [f"{known[layer]['r2']:.2f}" for layer in (0, 4)] == ["0.83", "0.63"]
    assert max(layer["r2"] for layer in none) < 0.05
    rnn, tiny = (of_study(part="recurrence", title=name)["training"] for name in ("rnn", "tiny"))
    assert f"{rnn['parameters'] / tiny['parameters']:.1f}" == "1.4"
    say("0.83", "0.63", "0.05", "1.4")


def bleu(encoding: str, bucket: str, kind: str = "free") -> float:
    """The mean over seeds of the BLEU of captions that were not concatenated in training."""
    spread = over(chosen(STUDY, part="captions", encoder=encoding, options=[]), score(bucket, "bleu", kind))
    assert spread is not None
    return spread.mean


def extremes(values: Iterable[float]) -> tuple[str, str]:
    """The least and the largest of values, as the guide has them."""
    ordered = sorted(values)
    return f"{ordered[0]:.1f}", f"{ordered[-1]:.1f}"


def test_differences_of_captions() -> None:
    usable = tasks.USABLE
    known = [name for name in usable if name != "none"]
    gains = {name: bleu(name, "18-") - bleu("sinusoidal", "18-") for name in known}
    assert extremes(gains[name] for name in ("relative", "rotary", "t5")) == ("3.2", "4.6")
    assert extremes(gains[name] for name in ("alibi", "learned")) == ("2.5", "2.8")
    assert extremes(bleu(name, "15-") - bleu(name, "15-", "forced") for name in usable) == ("1.9", "3.2")
    assert max(bleu(name, "joined 4", "forced") for name in usable) < 11
    within = [bleu(name, "12-14") for name in known]
    assert max(within) - min(within) < 3
    for bucket in ("15-17", "18-", "joined 2", "joined 4"):
        assert min(known, key=lambda name: bleu(name, bucket)) == "sinusoidal"
    say("3.2", "4.6", "2.5", "2.8", "1.9", "3.2")


def test_differences_of_other_models() -> None:
    rnn, tiny = (of_study(part="recurrence", title=name) for name in ("rnn", "tiny"))
    speeds = [each["training"]["target_tokens_per_second"] for each in (tiny, rnn)]
    plain, one, four = (
        score("all")(of_study(part="captions-attention", title=title))
        for title in ("not scaled, 4 heads", "scaled, 1 head", "scaled, 4 heads")
    )
    numbers = [
        score("all")(tiny) - score("all")(rnn),
        score("15-")(tiny) - score("15-")(rnn),
        speeds[0] / speeds[1],
        four - one,
        four - plain,
    ]
    assert [f"{number:.1f}" for number in numbers] == ["5.5", "6.0", "2.9", "0.7", "24.5"]
    say("5.5", "6.0", "2.9", "0.7", "24.5")


BIG = {"d_model": 1024, "d_ff": 4096, "heads": 16}


@pytest.mark.parametrize(("options", "millions"), [({}, "63.08"), (BIG, "214.25")])
def test_parameters_of_the_systems_of_the_paper(options: dict[str, int], millions: str) -> None:
    counted = num_weights(ModelConfig(**options), 37_000, 37_000)
    assert f"{counted / 1e6:.2f}" == millions
    assert millions in (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")


def test_what_differs_in_the_systems_of_the_paper() -> None:
    configs = ROOT / "configs"
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    for pair, pieces in (("de", "37,000"), ("fr", "32,000")):
        data = yaml.safe_load((configs / "data" / f"wmt14_{pair}_en.yaml").read_text(encoding="utf-8"))
        assert (data["tokenizer"]["segmentation"], f"{data['tokenizer']['vocab_size']:,}") == ("bpe", pieces)
        assert pieces in text
        for size, updates in (("base", "1,500 updates"), ("big", "`big` 600")):
            file = configs / "experiment" / f"wmt14_en_{pair}_{size}.yaml"
            every = yaml.safe_load(file.read_text(encoding="utf-8"))["training"]["checkpoint_every"]
            assert f"{every:,}" in updates and updates in text


def test_formulas_become_mathml() -> None:
    pytest.importorskip("latex2mathml", reason="the extra docs is not installed")
    from formulas import mathml

    for path in sorted((ROOT / "docs").rglob("*.md")):
        for block in page(path)[1]:
            if block.language == "math":
                assert mathml(block.text).startswith("<math")
    with pytest.raises(ValueError, match="does not know"):
        mathml(r"\nosuchcommand x")
