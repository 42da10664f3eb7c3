"""Facts about the lines of the training."""

from __future__ import annotations

from nmt.data.preparation.source_text import text_facts


def test_sentences_and_lengths() -> None:
    lines = [
        ("One. Two.", "en"),
        ("彼が来た。私は帰った。", "ja"),
        ("Er kam z. B. gestern.", "de"),
        ("x" * 30, "en"),
    ]
    facts = text_facts(lines * 30)
    assert (facts["several_sentences"], facts["characters"]) == (0.5, 30)
    rare = text_facts([("short", "en")] * 200 + [("x" * 99, "en")])
    assert (rare["several_sentences"], rare["characters"]) == (0.0, 5)
