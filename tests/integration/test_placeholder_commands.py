"""URLs, tags and variables through the real commands: each is in the translation of its line exactly once."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from commands import Toy
from serving import serving
from toy import WORDS

import nmt

STRINGS = ["https://a.b/c?d=1&e", "www.x.de", "x@b.cd", "<b>", "</b>", "<a href='x y'>"]
STRINGS += ["{name}", "${v}", "%s", "%(n)d"]


@pytest.fixture(scope="module")
def run(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a few updates, trained with placeholders; some of its pairs have strings."""
    for side, ending in enumerate(("src", "tgt")):
        lines = (toy.folder / f"train.{ending}").read_text(encoding="utf-8").splitlines()
        chosen = random.Random(1)
        for number in range(0, len(lines), 5):
            strings = chosen.sample(STRINGS, 2)
            lines[number] = " ".join([*strings[:: 1 - 2 * side], lines[number]])
        (toy.folder / f"strings.{ending}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    toy.done(
        "nmt-train",
        *toy.small("data.train.source=strings.src", "data.train.target=strings.tgt"),
        "data.placeholders=true",
        "data.tokenizer.vocab_size=424",
        "run_dir=masked",
    )
    return toy.folder / "masked"


def lines_with_strings() -> tuple[list[str], list[list[str]]]:
    chance = random.Random(2)
    lines, strings = [], []
    for _ in range(60):
        words = chance.choices(WORDS, k=chance.randint(1, 6))
        mine = chance.sample(STRINGS, chance.randint(0, 4))
        for string in mine:
            words.insert(chance.randint(0, len(words)), string)
        lines.append(" ".join(words))
        strings.append(mine)
    return lines, strings


@pytest.mark.parametrize(
    ("option", "copies"),
    [("decoding.samples=2", 2), ("decoding.workers=2", 1)],
)
def test_every_string_is_there_once(run: Path, toy: Toy, option: str, copies: int) -> None:
    lines, strings = lines_with_strings()
    urls = " ".join(f"https://a.b/{number}" for number in range(10_000))
    hostile = [
        "<" * 5000,
        "{" * 5000,
        "\u202e\u200f<b",
        "\x1b<i>\x00",
        urls,
        f"bo {urls.replace(' ', ' bi ')} ba",
        "",
        "%" * 999,
    ]
    result = toy.done(
        "nmt-translate", "model_dir=masked", "threads=1", "decoding.max_length_offset=5",
        "decoding.max_sentences=16", option, text="".join(f"{line}\n" for line in [*lines, *hostile]),
    )  # fmt: skip
    texts = result.stdout.decode().split("\n")[:-1]

    def translation(text: str) -> str:
        """Returns a text without number and score; the text may contain tabs."""
        return text if copies == 1 else text.split("\t", 2)[2]

    assert len(texts) == copies * (len(lines) + len(hostile))
    for number, mine in enumerate(strings):
        for text in texts[copies * number : copies * (number + 1)]:
            body = translation(text)
            assert [body.count(one) for one in mine] == [1] * len(mine), (lines[number], text)
    last = [translation(text) for text in texts[copies * len(lines) :: copies]]
    assert last[4] == urls
    assert all(last[5].count(f"https://a.b/{number}") for number in range(10_000))
    assert re.search(r"line 66: more than 64 URLs.* 39,744 characters", result.stderr.decode())


def test_from_python(run: Path, toy: Toy, said: pytest.LogCaptureFixture) -> None:
    model = nmt.load(run, threads=1)
    lines, strings = lines_with_strings()
    for text, mine in zip(model.translate(lines), strings, strict=True):
        assert [text.count(one) for one in mine] == [1] * len(mine)
    raw = model.translate(["bo {name} ba"], placeholders=False, max_length_offset=1)
    assert "{name}" not in raw[0]  # a model of a few updates does not copy
    [text] = model.translate(["{a} bo {b} ba {c}"], max_length_factor=0.0, max_length_offset=2)
    assert [text.count(one) for one in ("{a}", "{b}", "{c}")] == [1, 1, 1]
    assert "line 1: 2 URLs, tags or variables appended at the end of the translation" in said.text


def test_a_vocabulary_of_another_model(run: Path, toy: Toy) -> None:
    options = toy.small("data.tokenizer.path=masked", "run_dir=refused", "prepare_only=true")
    assert toy.refused("nmt-train", *options).endswith(
        "data.placeholders=false: the vocabulary of masked has placeholders. Set data.placeholders=true."
    )
    assert not (toy.folder / "refused").exists()


def test_the_tags_of_html_are_placed_by_the_search(run: Path, toy: Toy, tmp_path: Path) -> None:
    html = '<p>ba <b id="1">fu <i>na</i></b> &lt;mo <code>x &amp; y</code> fe ku</p><script>1</script>'
    with serving(toy, tmp_path, f"model_dir={run}", "threads=1", "decoding.workers=1") as server:
        answer = server.translate(q=html, format="html", alternatives=3)
        bare = server.translate(q="ba fu na <mo fe ku", alternatives=3)
    texts = [answer.json["translatedText"], *answer.json["alternatives"]]
    plain = [bare.json["translatedText"], *bare.json["alternatives"]]
    for text, expected in zip(texts, plain, strict=True):
        inner = text.removeprefix("<p>").removesuffix("</p><script>1</script>")
        assert inner.count("<code>x &amp; y</code>") == 1
        assert re.search(r'<b id="1">.*<i>.*</i>.*</b>', inner)
        without = re.sub("<[^>]*>", "", inner.replace("<code>x &amp; y</code>", "")).replace("&lt;", "<")
        assert without.replace("&gt;", ">").replace("&amp;", "&").split() == expected.split()
