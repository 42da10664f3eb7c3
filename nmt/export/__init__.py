"""Exports to other engines and imports, each compared with the original before it is handed over."""

from __future__ import annotations

from nmt.export.ctranslate2 import CTranslate2
from nmt.export.engine import EXPORTERS, Engine, Exporter
from nmt.export.importer import IMPORTERS, Imported, Importer
from nmt.export.marian import Marian
from nmt.export.marian_import import MarianImporter

EXPORTERS["ctranslate2"] = CTranslate2
EXPORTERS["marian"] = Marian
IMPORTERS["marian"] = MarianImporter

__all__ = ["EXPORTERS", "IMPORTERS", "Engine", "Exporter", "Imported", "Importer"]
