"""The earlier name of `nmt.interop` for plugins that register export and import formats."""

from __future__ import annotations

from nmt.interop import EXPORTERS, IMPORTERS, Exporter, Imported, Importer
from nmt.interop import ForeignModel as Engine

__all__ = ["EXPORTERS", "IMPORTERS", "Engine", "Exporter", "Imported", "Importer"]
