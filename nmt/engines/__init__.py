"""Engines that translate for `nmt-translate` and `nmt-serve`: nmt itself, and programs that read exports."""

from __future__ import annotations

from nmt.engines.ctranslate2 import CTranslate2
from nmt.engines.engine import ENGINES, Engine, LoadedModel
from nmt.engines.pytorch import PyTorch

ENGINES["nmt"] = PyTorch
ENGINES["ctranslate2"] = CTranslate2

__all__ = ["ENGINES", "Engine", "LoadedModel"]
