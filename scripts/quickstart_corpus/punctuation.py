"""Punctuation that both languages share: the capital, the final mark, commas that meet."""

from quickstart_corpus.meaning import Mood

_MARKS = {Mood.STATEMENT: ".", Mood.QUESTION: "?", Mood.COMMAND: "!"}


def finish(text: str, mood: Mood) -> str:
    """Returns a sentence with its capital and final mark, and one comma where two meet."""
    while ",," in text or ", ," in text:
        text = text.replace(",,", ",").replace(", ,", ",")
    text = text.rstrip(",")
    return text[0].upper() + text[1:] + _MARKS[mood]
