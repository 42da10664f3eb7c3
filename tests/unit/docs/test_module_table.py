"""docs/architecture.md names every module, and each module states its subject."""

from __future__ import annotations

from module_table import DOCUMENT, ROOT, subject, tables, updated


def test_the_tables_are_up_to_date() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == updated(text), "Run python scripts/module_table.py --write."


def test_every_module_is_in_the_tables() -> None:
    lines = tables(ROOT / "nmt").splitlines()
    for path in (ROOT / "nmt").rglob("*.py"):
        words = subject(path)
        assert words in lines or any(line.endswith(f" | {words} |") for line in lines), path


def test_packages_come_in_the_order_of_imports() -> None:
    sections = [line for line in tables(ROOT / "nmt").splitlines() if line.startswith("### ")]
    order = (
        "nmt config runtime options copying data model decoding documents evaluation reports interop "
        "training serving api cli".split()
    )
    assert sections == ["### nmt", *(f"### nmt.{one}" for one in order[1:])]
