"""The commands of the prompt: the settings after each, and the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from nmt.cli.prompt import COMMANDS, Settings, converse, is_command, respond, without_escape
from nmt.config import DecodingConfig, TranslateConfig
from nmt.decoding.translation import ScoredText, Translation
from nmt.documents.rows import Request
from nmt.errors import UserError


def settings(**decoding: Any) -> Settings:
    return Settings(TranslateConfig("m", decoding=DecodingConfig(**decoding)))


@pytest.mark.parametrize(
    ("line", "command", "text"),
    [
        (":beam 8", True, None),
        (":nbst", True, None),
        (":", True, None),
        ("::beam 8", False, ":beam 8"),
        (":::", False, "::"),
        (" :beam 8", False, " :beam 8"),
        ("a :beam", False, "a :beam"),
        ("", False, ""),
    ],
)
def test_which_lines_are_commands(line: str, command: bool, text: str | None) -> None:
    assert is_command(line) is command
    if text is not None:
        assert without_escape(line) == text


@pytest.mark.parametrize(
    ("line", "changes", "answer"),
    [
        (":nbest 3", {"nbest": 3}, "decoding.nbest=3"),
        (":nbest\t 3 ", {"nbest": 3}, "decoding.nbest=3"),
        (
            ":nbest 6",
            {"nbest": 6, "beam_size": 6},
            "decoding.nbest=6 decoding.beam_size=6 (raised from 4)",
        ),
        (":nbest", {}, "decoding.nbest=1"),
        (":beam 8", {"beam_size": 8}, "decoding.beam_size=8"),
        (":beam", {}, "decoding.beam_size=4"),
    ],
)
def test_numbers(line: str, changes: dict[str, int], answer: str) -> None:
    others: dict[str, Any] = {"length_penalty": 1.5, "processors": {"no_repeat_ngram": {"size": 2}}}
    assert respond(line, settings(**others)) == (settings(**others, **changes), answer)


@pytest.mark.parametrize(
    ("line", "decoding", "message"),
    [
        (":beam 0", {}, "decoding.beam_size=0: must be between 1 and 1,000."),
        (":beam x", {}, "decoding.beam_size: must be a whole number, not x."),
        (
            ":beam 2",
            {"nbest": 3},
            "decoding.nbest=3: is more than decoding.beam_size=2. Set decoding.beam_size=3, or lower "
            "decoding.nbest.",
        ),
        (":nbest 0", {}, "decoding.nbest=0: must be between 1 and 1,000."),
        (":nbest 1001", {}, "decoding.nbest=1001: must be between 1 and 1,000."),
        (":nbest 1.5", {}, "decoding.nbest: must be a whole number, not 1.5."),
        (
            ":nbest 3",
            {"samples": 5},
            "decoding.nbest=3: with decoding.samples=5 all samples are returned. Leave decoding.nbest at 1.",
        ),
        (":nbest x", {"samples": 5}, "decoding.nbest: must be a whole number, not x."),
        (
            ":nbest 1",
            {"mbr": "chrf", "nbest": 3},
            "decoding.mbr=chrf: has one candidate to choose from. Set decoding.samples=32, or "
            "decoding.nbest.",
        ),
        (":nbst 3", {}, ":nbst: is not a command. Did you mean :nbest N? ::TEXT translates :TEXT."),
        (":nbest=3", {}, ":nbest=3: is not a command. Did you mean :nbest N? ::TEXT translates :TEXT."),
        (":SCORE", {}, ":SCORE: is not a command. Did you mean :score? ::TEXT translates :TEXT."),
        (":-)", {}, ":-): is not a command. :help lists the commands. ::TEXT translates :TEXT."),
        (":", {}, ":: is not a command. :help lists the commands. ::TEXT translates :TEXT."),
        (":score on", {}, ":score: has no value. Type :score alone."),
    ],
)
def test_mistakes(line: str, decoding: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        respond(line, settings(**decoding))
    assert str(caught.value) == message


def test_a_beam_with_samples_has_no_effect() -> None:
    after, answer = respond(":beam 8", settings(samples=5))
    assert answer == "decoding.beam_size=8 (has no effect with decoding.samples=5)"
    assert after == settings(samples=5, beam_size=8)


def test_an_n_best_list_with_minimum_bayes_risk_has_the_candidates() -> None:
    after, answer = respond(":nbest 4", settings(mbr="chrf", nbest=3))
    assert answer == "decoding.nbest=4 (the candidates of decoding.mbr=chrf)"
    assert after == settings(mbr="chrf", nbest=4) and after.config.decoding.num_results == 1
    with pytest.raises(UserError, match=r"^decoding\.nbest=2: with decoding\.samples=5 all samples"):
        respond(":nbest 2", settings(mbr="chrf", samples=5))


def test_a_prefix_begins_translations_until_it_is_removed() -> None:
    after, answer = respond(":prefix  Ein  Mann ", settings())
    assert (after.prefix, answer) == ("Ein  Mann", 'Each translation begins with "Ein  Mann".')
    assert respond(":prefix", after) == (settings(), "Translations have no prefix.")


def test_switches() -> None:
    on, answer = respond(":score", settings())
    assert (on.config.scores, answer) == (True, "scores=true")
    assert respond(":score", on) == (settings(), "scores=false")
    on, _ = respond(":nbest 2", on)
    assert respond(":score", on)[1] == "scores=false (several translations always have scores)"
    looking, answer = respond(":attention", settings())
    assert (looking.attention, answer) == (True, "The attention of the best translation is shown.")
    assert respond(":attention", looking) == (settings(), "The attention is not shown.")


def test_attention_and_an_alignment_file_exclude_each_other() -> None:
    with pytest.raises(UserError) as caught:
        respond(":attention", Settings(TranslateConfig("m", alignments="a.align")))
    assert str(caught.value) == (
        ":attention: is not available with alignments=a.align. Start nmt-translate without it."
    )


def test_another_backend_has_no_attention() -> None:
    with pytest.raises(UserError, match="^:attention: backend=ctranslate2 has none. Use backend=nmt.$"):
        respond(":attention", Settings(TranslateConfig("m", backend="ctranslate2")))


def test_help_has_a_line_for_each_command() -> None:
    after, answer = respond(":help", settings())
    assert after == settings()
    lines = answer.splitlines()
    assert [line.split()[0] for line in lines] == [*(f":{name}" for name in COMMANDS), "::TEXT"]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("end", [EOFError, ":quit"])
def test_a_conversation(
    end: Any, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A command, a typing mistake, bytes that are not UTF-8, Ctrl-C, a refused search, and the end."""
    typed: Iterator[Any] = iter(
        ["a b", "", ":beam 3", ":beem 3", ":prefix X", ":attention", "::c", "\udcff", KeyboardInterrupt]
        + ["too long", "d\ne", end]
    )

    def answer(*prompt: str) -> str:
        value = next(typed)
        if not isinstance(value, str):
            raise value
        return value

    def translate_with(settings: Settings) -> Any:
        def translate_all(requests: Sequence[Request]) -> Iterator[Translation]:
            for request in requests:
                if request.text == "too long":
                    raise UserError("decoding.beam_size=3: no memory")
                words = f"{request.prefix}{request.text.upper()}/{settings.config.decoding.beam_size}"
                attention = torch.tensor([[1.0]]) if settings.attention else None
                yield Translation((ScoredText(words, -1.0, attention, pieces=("P",)),), source_pieces=("Q",))

        return translate_all

    reported: list[tuple[int, int]] = []
    monkeypatch.setattr("builtins.input", answer)
    converse(
        translate_with,
        TranslateConfig("m", decoding=DecodingConfig(beam_size=2)),
        lambda _, number, config: reported.append((number, config.decoding.beam_size)),
    )
    out, error = capsysbinary.readouterr()
    assert out.decode() == "A B/2\nX:C/3\nXD/3\nXE/3\n"
    assert reported == [(1, 2), (2, 3), (3, 3), (4, 3)]
    shown = error.decode()
    for line in (
        "decoding.beam_size=3",
        "decoding.beam_size=3: no memory",
        ":beem",
        "The line is not UTF-8.",
    ):
        assert line in shown
    assert shown.count("attention in percent") == 3 and shown.endswith("> \n")
