"""Neural machine translation from sentence pairs to a trained model, translations and a BLEU report.

    result = nmt.train(["data=local", "data.train.source=a.en", ...])
    model = nmt.load("runs/mine")
    model.translate("A sentence.")
    nmt.evaluate(hypotheses, references, target_lang="de").scores["bleu"]

The guide is docs/python.md. `import nmt` imports no dependencies; the first call that needs torch imports it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.api.evaluation import evaluate
    from nmt.api.model import Model, load
    from nmt.api.training import train
    from nmt.errors import UserError
    from nmt.evaluation.report import Report
    from nmt.training.run import TrainResult

__version__ = "0.1.0"

__all__ = ["Model", "Report", "TrainResult", "UserError", "__version__", "evaluate", "load", "train"]

_MODULES = {
    "Model": "nmt.api.model",
    "Report": "nmt.evaluation.report",
    "TrainResult": "nmt.training.run",
    "UserError": "nmt.errors",
    "evaluate": "nmt.api.evaluation",
    "load": "nmt.api.model",
    "train": "nmt.api.training",
}


if not TYPE_CHECKING:  # with `__getattr__` a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Imports a name of the interface on first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import_module("nmt.runtime.files").choose_temporary_folder()  # before torch is imported
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Lists the names of the interface too, before their first use."""
    return sorted({*globals(), *__all__})
