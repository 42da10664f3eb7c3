"""Exports a model to another engine, and proves that it translates the same; uploads it on request.

  nmt-export model_dir=runs/quickstart output=exported                       for CTranslate2, exact
  nmt-export model_dir=DIR output=exported quantization=int8                 smaller and faster
  nmt-export model_dir=DIR output=exported format=marian                     for transformers
  nmt-export model_dir=DIR output=exported format=argos                      for Argos and LibreTranslate
  nmt-export model_dir=DIR output=exported check=a.en references=a.de        compared on this text
  nmt-export model_dir=DIR output=exported format=nmt push=OWNER/NAME        a copy, on the Hugging Face hub

The export is loaded by its engine and compared with the model, by default on the validation data: the ids
of the text, the log-probability of each token, and the text of greedy search. A difference deletes the export
and is an error. A quantised export is compared by BLEU after its exact version has passed.

Other engines need the extra packages of nmt[export]. hf://OWNER/NAME is a model on the hub.
"""

from __future__ import annotations

from nmt.cli.app import run
from nmt.config import ExportConfig


def export(config: ExportConfig) -> None:
    """Exports as `config` says, and raises as `nmt.interop.tasks.export`."""
    from nmt.interop.tasks import export  # imports torch, for which --help does not wait

    export(config)


def main() -> None:
    """Entry point of `nmt-export`."""
    run(export, ExportConfig, "export", __doc__ or "")


if __name__ == "__main__":
    main()
