"""The earlier name of `nmt.interop` for plugins that register engines."""

from __future__ import annotations

from nmt.interop import ENGINES, Engine, LoadedModel

__all__ = ["ENGINES", "Engine", "LoadedModel"]
