"""Lines of several sentences, in capitals, without letters or with numbers, under all options about them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from attack.case import Case, evaluate, refused, train, translate, works
from attack.room import Room

_SPLIT = "decoding.split_sentences=true"
_TEXTS = [
    "ba be. bi bo! bu da? de.",
    " ba be.\u3000bi bo.\u2028\u2029bu.\tda.\x85de. ",
    "BA BE. BI BO! 3.5 BU.",
    "Ba Be Bi Bo Bu. Da De Di Do.",
    "102",
    "12. 13. 14.",
    "",
    "\u200d",
    "\u3164 \u200f",
    "...!?",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467. \U0001f600 ba. \U0001f600",
    "ba. " * 300,
    "." * 5000,
    "ba, " * 300 + "be.",
    "「ba。" * 200,
    "“ba。”他说。“be。”",
    "<p>ba be.</p> <p>bi bo.<br/>bu.",
    "https://a.b/c.d. ba be. me@x.yz. {x}. bi",
    "1,234.5 ba. ١٢٣ be. 3万5千 bi. १२,३४,५६७ bo.",
    "\x00. \x01. \x1b[2J. ba.",
    "ba.\rbe.\r",
    "İI ıi. ẞß. ΣΑΣ. ǅ. IJ ij.",
    "\u0301. e\u0301. \ufffd. \U000f0000. \ue000.",
]
_OPTIONS: tuple[tuple[str, ...], ...] = (
    (),
    ("decoding.nbest=2",),
    ("decoding.samples=3",),
    ("decoding.samples=3", "decoding.mbr=bleu"),
    ("decoding.nbest=2", "decoding.mbr=chrf"),
    ("scores=true", "alignments=links"),
    ("decoding.workers=2",),
    ("decoding.max_sentences=1",),
    ("decoding.max_source_tokens=3",),
    ("decoding.max_source_tokens=1",),
    ("decoding.case=always",),
    ("decoding.case=always", "decoding.beam_size=1", "decoding.retry_loops=true"),
    ("decoding.numbers=ignore", "decoding.copy_without_letters=false"),
    ("terminology=terms",),
)


def _put(room: Room) -> None:
    room.put_model()
    (room.work / "texts").write_text("".join(f"{text}\n" for text in _TEXTS), newline="")
    (room.work / "terms").write_text("ba be\tab\nbo\tob eb\n")
    members: list[dict[str, object]] = [{}, {"prefix": "ab"}, {"prefix": "ab. eb. "}, {"constraints": ["eb"]}]
    lines = [json.dumps({"text": text, **more}) for text in _TEXTS for more in members if "\n" not in text]
    (room.work / "texts.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _parts(room: Room) -> str | None:
    """Each translation has the translations of its parts, in order."""
    for number, line in enumerate(room.stdout.read_bytes().decode().split("\n")[:-1], 1):
        result = json.loads(line)
        place = 0
        for part in result.get("parts", ()):
            place = result["translation"].find(part["translation"], place)
            if place < 0:
                return f"line {number} lacks the translation of {part['text']!r}"
            place += len(part["translation"])
    return None


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for options in _OPTIONS:
        count = next(
            (int(one[-1]) for one in options if one.startswith(("decoding.nbest", "decoding.sa"))), 1
        )
        expected = works(len(_TEXTS) * (1 if any("mbr" in one for one in options) else count))
        for first in (_SPLIT, "decoding.split_sentences=false"):
            name = f"texts/{' '.join((first, *options)).replace('decoding.', '')}"
            yield translate(name, expected, "input=texts", first, *options, setup=_put)
    count = 4 * len(_TEXTS)
    for options in ((_SPLIT,), (), (_SPLIT, "decoding.nbest=2"), (_SPLIT, "alignments=links")):
        arguments = ("input=texts.jsonl", "format=jsonl", *options)
        name = f"texts/json {' '.join(options).replace('decoding.', '')}"
        yield translate(name, works(count, check=_parts), *arguments, setup=_put)
    for value in ("maybe", "2", "null", "[true]"):
        wrong = refused(f"split_sentences={value}: must be auto, true or false.")
        yield translate(f"texts/split={value}", wrong, f"decoding.split_sentences={value}")
    yield translate("texts/numbers of no placeholders", refused("placeholders"), "decoding.numbers=copy")
    yield translate(
        "texts/two contrary options",
        refused("placeholders"),
        "decoding.numbers=copy",
        "decoding.placeholders=false",
    )
    yield train("texts/split in training", works(), _SPLIT, "decoding.case=always")
    yield evaluate("texts/split", works(), "model_dir=model", _SPLIT, setup=Room.put_model)
