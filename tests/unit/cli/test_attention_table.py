"""The table of attention weights at the prompt: literal tables."""

from __future__ import annotations

from nmt.cli.prompt import MAX_TOKENS, attention_table

TITLE = "attention in percent: translation in rows, source in columns\n"


def test_a_table() -> None:
    found = attention_table(
        ["▁A", "▁dog", "</s>"],
        ["▁Ein", "▁Hund", "</s>"],
        [[0.756, 0.2, 0.044], [0.004, 0.996, 0.0], [0.0, 0.005001, 0.994]],
        80,
    )
    assert found == TITLE + (
        "       ▁A ▁dog </s>\n"
        "▁Ein   76   20    4\n"
        "▁Hund   .  100    .\n"
        "</s>    .    1   99\n"
    )  # fmt: skip


def test_columns_continue_in_blocks_of_the_width() -> None:
    weights = [[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]]
    found = attention_table(["aa", "bb", "cc", "dd"], ["x", "yy"], weights, 10)
    assert found == TITLE + (
        "    aa  bb\n"
        "x   10  20\n"
        "yy  40  30\n"
        "\n"
        "    cc  dd\n"
        "x   30  40\n"
        "yy  20  10\n"
    )  # fmt: skip
    assert attention_table(["aa", "bb", "cc", "dd"], ["x", "yy"], weights, 9).count("\n\n") == 3
    assert attention_table(["aa", "bb", "cc", "dd"], ["x", "yy"], weights, 1).count("\n\n") == 3


def test_wide_characters_accents_and_long_tokens() -> None:
    found = attention_table(
        ["猫が好き", "e\u0301", "\x1b[31m", "abcdefghijklmnopq", "猫" * 9],
        ["木", "a"],
        [[0.2] * 5, [0.2] * 5],
        80,
    )
    assert found == TITLE + (
        "   猫が好き   e\u0301 \\x1b[31m abcdefghijklm… 猫猫猫猫猫猫…\n"
        "木       20  20       20             20            20\n"
        "a        20  20       20             20            20\n"
    )


def test_long_sentences_are_cut_and_say_so() -> None:
    size = MAX_TOKENS + 1
    found = attention_table(["s"] * size, ["t"] * 2000, [[0.01] * size] * 2000, 1000).splitlines()
    assert len(found) == 1 + 1 + MAX_TOKENS + 2
    assert found[2].split() == ["t", *["1"] * MAX_TOKENS]
    assert found[-2:] == [
        "The first 60 of 61 source tokens are shown.",
        "The first 60 of 2,000 target tokens are shown.",
    ]
