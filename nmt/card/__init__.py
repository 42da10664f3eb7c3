"""Model cards: README.md of model folders and exports, with the YAML header that Hugging Face's hub reads.

A card has recorded facts only: the options of the model and its `results.json`. These may come from a
stranger. So their text is written as code, in which Markdown and HTML have no effect.

See huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

from nmt.card.cards import CARD, bundle_card, export_card
from nmt.card.facts import Subject

__all__ = ["CARD", "Subject", "bundle_card", "export_card"]
