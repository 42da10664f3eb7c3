"""Punctuation of both languages: initial capital, final mark, adjacent commas."""

from quickstart_corpus.meaning import Mood

_MARKS = {Mood.STATEMENT: ".", Mood.QUESTION: "?", Mood.COMMAND: "!"}


def finish(text: str, mood: Mood) -> str:
    """Returns a sentence with initial capital and final mark; merges adjacent commas."""
    while ",," in text or ", ," in text:
        text = text.replace(",,", ",").replace(", ,", ",")
    text = text.rstrip(",")
    return text[0].upper() + text[1:] + _MARKS[mood]
