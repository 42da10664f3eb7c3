"""Exports of models to other engines, each compared with the original before it is handed over."""

from __future__ import annotations

from nmt.export.ctranslate2 import CTranslate2
from nmt.export.engine import EXPORTERS, Engine, Exporter
from nmt.export.marian import Marian

EXPORTERS["ctranslate2"] = CTranslate2
EXPORTERS["marian"] = Marian

__all__ = ["EXPORTERS", "Engine", "Exporter"]
