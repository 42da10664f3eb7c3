"""Goldens of a trained model: translations, scores, exports and imports."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

from golden_parts.corpus import STRINGS, WORDS
from golden_parts.trainings import learnt_models
from golden_parts.workshop import CASES, Workshop


def write_inputs(folder: Path) -> dict[str, str]:
    """Writes the files that options name; returns the texts to translate, by name."""
    chance = random.Random(5)
    lines = [" ".join(chance.choices(WORDS, k=chance.randint(1, 8))) for _ in range(40)]
    with_strings = []
    for _ in range(25):
        words = chance.choices(WORDS, k=chance.randint(1, 6))
        for string in chance.sample(STRINGS, chance.randint(1, 4)):
            words.insert(chance.randint(0, len(words)), string)
        with_strings.append(" ".join(words))
    with_strings += ["<b>ba be</b> bi", "<b></b>", "{name}", "ba <i>be <b>fo</b></i> ku, {x}.", "</b> ba <b>"]
    odd = [
        "",
        " ",
        "\t",
        "ba\tbe",
        "Hello, wörld! 你好",
        "ba\u2028be",
        "ba\x00be",
        "ba\r",
        "a" * 300,
        "BA be.",
    ]
    objects = [
        *('{"text": "ba be bi"}', '{"text": "fo ku", "id": 7}', '{"text": ""}', "no json", "[1]"),
        *('{"text": "ba be bi", "prefix": "ib"}', '{"text": "lo du", "constraints": ["ek", "ub"]}'),
        *('{"text": 3}', '{"text": "ba", "prefix": 1}', '{"text": "lo {a} du", "tag": "<x>"}'),
    ]
    table = [f"{number}\t{line}\tx" for number, line in enumerate(lines[:10])]
    (folder / "terms.tsv").write_text("# terms\nba\tzwei Worte\nbe bi\tub\nlo\tol\n", encoding="utf-8")
    references = list(enumerate((folder / "large.test.tgt").read_text().splitlines()))
    for name, letter in (("hyp", "a"), ("base", "e")):
        changed = [line.replace(letter, "i") if number % 2 else line for number, line in references]
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in changed))
    (folder / "groups.txt").write_text("".join(f"{'ab'[number % 3 == 0]}\n" for number, _ in references))
    repeated = ["ba ba ba ba ba ba ba", "be fo be fo be fo be fo", *lines[:5]]
    texts = {"lines": lines, "strings": with_strings, "odd": odd, "jsonl": objects, "table": table}
    texts |= {"repeated": repeated, "commands": [":nbest 2", "ba be", "::ba", ":beem 3"]}
    return {name: "".join(f"{line}\n" for line in text) for name, text in texts.items()}


def record_translations(workshop: Workshop) -> None:
    """Records the output of nmt-translate."""
    model, other = learnt_models(workshop)
    texts = write_inputs(workshop.folder)
    alone = ("threads=1", "decoding.workers=1")
    for name, (text, words) in CASES["translations"].items():
        options = words.split()
        own = {word.partition("=")[0] for word in options}
        defaults = [word for word in alone if word.partition("=")[0] not in own]
        case = f"translate/{name}"
        aligned = workshop.folder / "out.align"
        aligned.unlink(missing_ok=True)
        workshop.note_run(case, "translate", f"model_dir={model}", *defaults, *options, stdin=texts[text])
        if aligned.exists():
            workshop.note_file(f"{case}-file", aligned)
    case = "translate/ensemble"
    workshop.note_run(
        case, "translate", f"model_dir=[{model},{other}]", "scores=true", *alone, stdin=texts["lines"]
    )
    if workshop.wants("translate/files"):
        (workshop.folder / "in.txt").write_text(texts["lines"])
        files = ("input=in.txt", "output=out.txt")
        workshop.note_run("translate/files", "translate", f"model_dir={model}", *files, *alone)
        workshop.note_file("translate/files-output", workshop.folder / "out.txt")
    checkpoint = f"model_dir={model}/checkpoints/update-250"
    workshop.note_run("translate/checkpoint", "translate", checkpoint, *alone, stdin=texts["lines"])


def record_evaluations(workshop: Workshop) -> None:
    """Records the output of nmt-eval."""
    model, other = learnt_models(workshop)
    write_inputs(workshop.folder)
    for name, words in CASES["evaluations"].items():
        options = words.format(model=model, other=other).split()
        workshop.note_run(f"eval/{name}", "eval", *options)
        for path, kind in (("report.json", "report"), ("own.out", "output")):
            if (workshop.folder / path).exists():
                workshop.note_file(f"eval/{name}-{kind}", workshop.folder / path)
                (workshop.folder / path).unlink()


def record_exports(workshop: Workshop) -> None:
    """Records exports, their files, and an import of one of them."""
    model, _ = learnt_models(workshop)
    texts = write_inputs(workshop.folder)
    cases = {"ctranslate2": "format=ctranslate2", "marian": "format=marian"}
    cases |= {"int8": "format=ctranslate2 quantization=int8"}
    for name, words in cases.items():
        folder = f"export-{name}"
        options = (f"model_dir={model}", f"output={folder}", "threads=1", *words.split())
        workshop.note_run(f"export/{name}", "export", *options)
        note_folder(workshop, f"export/{name}", workshop.folder / folder)
    if (workshop.folder / "export-marian").exists():
        options = ("format=marian", "model=export-marian", "output=imported", "threads=1")
        workshop.note_run("export/import", "import", *options)
        note_folder(workshop, "export/import", workshop.folder / "imported")
        imported = ("model_dir=imported", "threads=1", "scores=true")
        workshop.note_run("export/import-translates", "translate", *imported, stdin=texts["lines"])
    if (workshop.folder / "export-ctranslate2").exists():
        exported = ("model_dir=export-ctranslate2", "backend=ctranslate2", "threads=1")
        workshop.note_run("export/translates", "translate", *exported, stdin=texts["lines"])
    workshop.note_file("export/card", workshop.folder / model / "model/README.md")


def note_folder(workshop: Workshop, name: str, folder: Path) -> None:
    """Records the names of the files of a folder and the SHA-256 of each one's content."""
    if not folder.exists():
        return
    lines = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        place = path.relative_to(folder)
        if path.suffix in (".json", ".md", ".yaml") or path.name == "SHA256SUMS":
            lines.append(f"{place}")
            workshop.note_file(f"{name}-files/{place}", path)
        else:
            lines.append(f"{place} {hashlib.sha256(path.read_bytes()).hexdigest()[:24]}")
    workshop.note(f"{name}-files", "\n".join(lines))
