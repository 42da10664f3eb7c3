"""Exchange with other programs: exports, imports and engines, each compared with the model of nmt."""

from __future__ import annotations

from nmt.interop.ctranslate2_export import CTranslate2Exporter
from nmt.interop.engines import CTranslate2Engine, PyTorchEngine
from nmt.interop.interfaces import (
    ENGINES,
    EXPORTERS,
    IMPORTERS,
    Engine,
    Exporter,
    ForeignModel,
    Imported,
    Importer,
    LoadedModel,
)
from nmt.interop.marian_export import MarianExporter
from nmt.interop.marian_import import MarianImporter

EXPORTERS["ctranslate2"] = CTranslate2Exporter
EXPORTERS["marian"] = MarianExporter
IMPORTERS["marian"] = MarianImporter
ENGINES["nmt"] = PyTorchEngine
ENGINES["ctranslate2"] = CTranslate2Engine

__all__ = [
    "ENGINES",
    "EXPORTERS",
    "IMPORTERS",
    "Engine",
    "Exporter",
    "ForeignModel",
    "Imported",
    "Importer",
    "LoadedModel",
]
