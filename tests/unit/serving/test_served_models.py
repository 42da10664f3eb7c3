"""The models of the server: a worker process that fails is replaced."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import wait_until

from nmt.config import DecodingConfig, ServeConfig
from nmt.errors import UserError
from nmt.interop import ENGINES
from nmt.interop.interfaces import Engine, LoadedModel
from nmt.serving.served_models import SearchOptions, ServedModel, load_served_models


class Killed:
    """A translator with two worker processes; the line `kill` kills the one that has it, `long` lasts."""

    config = DecodingConfig()
    searcher = SimpleNamespace(has_attention=False, num_processes=2, prepare=lambda *request, **more: None)

    def with_options(self, config: DecodingConfig) -> Killed:
        return self

    def translate_parts(self, lines: Sequence[str], **options: Any) -> list[Any]:
        if "kill" in lines:
            os.kill(os.getpid(), signal.SIGKILL)
        if "long" in lines:
            time.sleep(60)
        return [line.upper() for line in lines]


def test_a_killed_process_is_named_and_replaced_later_if_there_is_no_memory_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    translator: Any = Killed()
    model = ServedModel(translator, "en", "de", 1)

    def full() -> int:
        raise OSError("Cannot allocate memory")

    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fork", full)
            for _ in range(2):  # both processes
                with pytest.raises(UserError, match="^A worker process of the server was killed"):
                    model.translate(["kill"], SearchOptions())
        for line in "abc":
            results: Sequence[Any] = model.translate([line], SearchOptions())
            assert results == [line.upper()]
    finally:
        model.close()


def test_a_stopped_call_ends_at_once_and_its_process_is_replaced() -> None:
    translator: Any = Killed()
    model = ServedModel(translator, "en", "de", 1)
    raised: list[BaseException] = []

    def translate() -> None:
        try:
            model.translate(["long"], SearchOptions())
        except UserError as error:
            raised.append(error)

    try:
        threads = [threading.Thread(target=translate) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(model._busy) == 2)
        for thread in threads:
            assert thread.ident is not None
            model.stop(thread.ident)
            model.stop(thread.ident)
            thread.join(20)
            assert not thread.is_alive()
            model.stop(thread.ident)  # it has ended
        assert len(raised) == 2
        for line in "abc":
            results: Sequence[Any] = model.translate([line], SearchOptions())
            assert results == [line.upper()]
    finally:
        model.close()


@pytest.mark.parametrize(
    ("of_model", "on_command_line", "served"),
    [("auto", "auto", True), (False, False, False), (True, True, True), (True, False, False)],
)
def test_sentences_are_split_unless_the_model_or_the_command_line_says_otherwise(
    of_model: Any, on_command_line: Any, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[Any] = []

    def translator(decoding: DecodingConfig) -> Any:
        chosen.append(decoding.split_sentences)
        return SimpleNamespace(
            config=decoding,
            searcher=SimpleNamespace(
                has_attention=False, num_processes=1, prepare=lambda *request, **more: None
            ),
            with_options=lambda config: SimpleNamespace(translate_parts=lambda lines, **options: []),
        )

    class Toy(Engine):
        def check(self, config: Any) -> None:
            pass

        def load(self, config: Any, model_dir: list[str]) -> LoadedModel:
            return LoadedModel("en", "de", DecodingConfig(split_sentences=of_model), 1, translator)

    monkeypatch.setitem(ENGINES, "toy", Toy)
    decoding = DecodingConfig(split_sentences=on_command_line)
    [model] = load_served_models(ServeConfig("m", backend="toy", decoding=decoding))
    model.close()
    assert chosen == [served]


def test_work_is_characters_times_hypotheses_and_more_with_tags_and_terms() -> None:
    translator: Any = SimpleNamespace(
        config=DecodingConfig(beam_size=4, max_sentences=10),
        searcher=SimpleNamespace(has_attention=False, num_processes=1, prepare=lambda *request, **more: None),
        with_options=lambda config: SimpleNamespace(translate_parts=lambda lines, **options: []),
    )
    model = ServedModel(translator, "en", "de", 1)
    line, tagged = "a" * 80, "<b>" + "a" * 73 + "</b>"
    assert model.work([line, ""], SearchOptions()) == [560, 240]
    assert model.work([tagged], SearchOptions()) == [1260]
    assert model.work([line], SearchOptions(beam_size=16, nbest=10)) == [2240]
    assert model.work(["<b>a</b>" * 30], SearchOptions(beam_size=16, nbest=10)) == [412800]
    terms = SearchOptions(terms=(("b", "c"),))
    assert model.work([line, "b b a " + "a" * 74, "b " * 40], terms) == [560, 560 * 3, 560 * 13]
    assert model.is_slow_to_estimate(terms) and not model.is_slow_to_estimate(SearchOptions())
    assert model.batch_work == 10 * 400 * 4
