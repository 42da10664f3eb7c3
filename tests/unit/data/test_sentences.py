"""The sentences of lines in many languages, and that nothing of a line is lost between them."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.sentences import joins_without_space, sentence_spans

SENTENCES = {
    "en": [
        "Mr. Smith met Dr. Jones at 5 p.m. on Jan. 3.| They left.",
        "He said: “I can't go. It's late.”| Then he left.",
        "It costs $3.50 vs. 4.20 euros, e.g. in the U.S.A. today.| Really?!| Yes.",
        "1. Open the box.| 2. Take it out.",
        "See :term:`byte code <b>` now.| It is `so`.",
        "It has max. 5 lines, approx. 20 words.| A woman smiles.| {name} runs.| %d files, min. {n}, no. {m}.",
        "J. R. R. Tolkien wrote it.| See p. 5, fig. 2.",
        "it is late.| see you!| bye",
        "Great!| 😀 Thanks. 😀",
        "See https://a.b/c.d?e=f. or me@x.yz.| Then <b>go.</b>| <i>Now!</i>| {a. B} is it.",
        "<p>It is so.</p>|<p>It is.</p>|<br/>One.|<br>Two",
        "No end",
        "Wait ... what?",
        "“Stop!” Mary Ann shouted.| “No.”| He left.| ‘Why?’ he asked.",
    ],
    "de": [
        "Am 3. Oktober kam Dr. Müller um ca. 15 Uhr.| Er blieb z. B. bis 18 Uhr.",
        "„Ich komme nicht. Es ist spät“, sagte er.| Dann ging er.",
        "ein mann rennt.| zwei hunde spielen.",
        "Nr. 5 steht auf S. 12 ff. des Buches.| Siehe Abb. 2.",
        "Im 18. und 19. Jahrhundert, an seinem 13. Geburtstag.| Wir kommen am 15.| Dann ist er 16.| Gut.",
        "es war im 16. jahrhundert.| er wohnt in der 6. etage.",
    ],
    "fr": [
        "M. Dupont et Mme. Durand sont arrivés à 15 h.| Ils sont repartis.",
        "« Je ne viens pas. Il est tard. »| Puis il partit.",
        "J.-P. Sartre écrivait.| Vraiment ?!| Oui.",
    ],
    "es": ["El Sr. García llegó.| ¿Qué hora es?| ¡No lo sé!| Es tarde.", "—¡No! —dijo él.| Se fue."],
    "it": ["L'art. 5 della legge n. 3 è chiaro.| Costa 3,50 euro."],
    "ru": [
        "Это стоит 5 руб. 50 коп. за шт.| Правда?!| См. рис. 2 и т. д. на стр. 5.",
        "«Нет!» — сказал он.| — Да.| — Он ушёл.",
    ],
    "pl": ["Np. w 2010 r. było zimno.| Dr Nowak przyszedł o godz. 15.| Tak."],
    "el": ["Πού πας;| Δεν ξέρω.| Ο κ. Παπαδόπουλος ήρθε."],
    "ar": ["أين أنت؟| أنا هنا!| حسنا."],
    "hi": ["वह आया।|3 लोग गए।", "तुम कहाँ हो?| डॉ. शर्मा घर गए।| वे खुश थे।"],
    "zh": [
        "他来了。|我走了！|他说：“我不去。太晚了。”|然后他走了。|价格是3.50元。",
        "“是的。”他说。|“好。”|我知道他来了。|“走？”她問道：“去。”",
        "“好！”——他说。|“好。” 他说。|“好。”|他走了。",
    ],
    "yue": ["他来了。|3公斤。|iPhone很好！|（你好。）|他說「3個。3個。」|再见。"],
    "zho_Hant": ["他來了。|我走了！"],
    "ja": [
        "彼は「行かない。遅いから。」と言った。|そして帰った。|本当？|はい。",
        "「はい。」彼は言った。|「行くぞ！」という声。|「来い。」|とても寒い。|「はい。」|はい、そうです。|「やめて！」の声。",
    ],
    "ko": [
        "수 있습니다.| mmap 참조는 시작입니다.",
        '그는 "안 가. 늦었어."라고 말했다.| 그리고 갔다.',
        "“네!”라고 그는 말했다.| ‘좋아!’하고 갔다.| “네.”| 그가 왔다.",
    ],
    "vi": ["Ông Nguyễn đến TP. Hồ Chí Minh lúc 5 giờ.| Ông ấy về."],
    "km": ["ខ្ញុំទៅផ្ទះ។| គាត់មកវិញ។"],
    "ur": ["وہ آیا۔| میں گیا۔"],
    "hy": ["Նա եկավ։| Ես գնացի։"],
    "th": ["เขามาแล้ว ฉันไปแล้ว"],
    "xx": ["Alo one.| Balo two!"],
}
"""Language → lines, in which `|` stands at the end of each sentence but the last."""

MARKS = "aAbé ..!?\"'()“”«»。！？」「1-…;:,\U0001f600\x00xIDr日本한א؟।ß„\u3000\t\r\u2029\u2028\u0301<b>/"


def sentences(line: str, language: str) -> list[str]:
    return [line[begin:end] for begin, end in sentence_spans(line, language)]


@pytest.mark.parametrize(
    ("language", "marked"), [(lang, line) for lang in SENTENCES for line in SENTENCES[lang]]
)
def test_sentences(language: str, marked: str) -> None:
    assert sentences(marked.replace("|", ""), language) == [part.strip() for part in marked.split("|")]


def test_separators_of_lines_and_paragraphs_end_sentences() -> None:
    assert sentences(" A title\u2028Some\u2029 \u2029text. More\rand\vso ", "en") == [
        "A title", "Some", "text.", "More", "and", "so",
    ]  # fmt: skip
    assert sentences("A tab\tis none", "en") == ["A tab\tis none"]
    assert sentences(" \u2029 ", "en") == sentences("", "en") == []


@settings(max_examples=300)
@given(st.text(st.sampled_from(MARKS), max_size=40) | st.text(max_size=20), st.sampled_from([*SENTENCES]))
def test_only_white_space_is_between_sentences(line: str, language: str) -> None:
    spans = sentence_spans(line, language)
    place = 0
    for begin, end in spans:
        assert place <= begin < end and not line[place:begin].strip()
        assert line[begin:end] == line[begin:end].strip()
        place = end
    assert not line[place:].strip()


@settings(max_examples=300)
@given(
    st.text(st.sampled_from("aB1 ,'’()-_\u00e9你のД\u0e40日본א٣\u3000\t"), max_size=30),
    st.sampled_from(["", ".", "!", "?", " ."]),
    st.sampled_from([*SENTENCES]),
)
def test_plain_lines_are_whole_in_all_languages(text: str, mark: str, language: str) -> None:
    line = text + mark
    spans = sentence_spans(line, language)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt.data.sentences._PLAIN", re.compile("(?!)"))
        assert sentence_spans(line, language) == spans


def test_long_lines_are_read_in_windows() -> None:
    parts = [f"This is sentence {number} of Mr. Smith." for number in range(400)]
    assert sentences(" ".join(parts), "en") == parts
    long = "word " * 3000
    assert sentences(f"One. The {long}ends. Two.", "en") == ["One.", f"The {long}ends.", "Two."]
    assert sentences(f"{long}of Dr. Smith's cat. Two.", "en") == [f"{long}of Dr. Smith's cat.", "Two."]
    for hostile in ("「a。", "»", "1. ", "“a. ", " ", "a "):  # half a minute if the time grew with the square
        assert len(sentence_spans(hostile * (100_000 // len(hostile)) + "a;", "en")) >= 1


def test_a_splitter_that_fails_leaves_the_line_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):  # noqa: N818  # as pyo3 has it
        pass

    def panic(language: str, text: str) -> list[str]:
        raise PanicException if text == "One. Two." else KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "sentencex", SimpleNamespace(segment=panic))
    assert sentences("One. Two.", "en") == ["One. Two."]
    with pytest.raises(KeyboardInterrupt):
        sentences("Three. Four.", "en")


def test_spaces_of_languages() -> None:
    assert [*map(joins_without_space, ("zh", "zh_Hant", "ja", "th", "ko", "de"))] == [True] * 3 + [False] * 3
