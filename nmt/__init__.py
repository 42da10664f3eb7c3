"""Neural machine translation, end to end: sentence pairs in; a model, a translator and a BLEU report out."""

__version__ = "0.1.0"
