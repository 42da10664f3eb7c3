"""Imports a model of another program as a model folder, and proves that it translates the same.

  nmt-import model=hf://Helsinki-NLP/opus-mt-en-de output=en-de  an OPUS-MT model of the Hugging Face hub
  nmt-import model=DIR output=DIR                                a folder with a Marian model
  nmt-import model=opus.zip output=DIR source_lang=en target_lang=de             the zip of an OPUS-MT model
  nmt-import model=DIR output=DIR source_lang=en target_lang=de  if the model does not say its languages
  nmt-import model=DIR output=DIR check=a.en references=a.de     compared on this text

The folder is one of transformers' Marian (MarianMTModel), with source.spm, target.spm and vocab.json, or one
of Marian itself, with decoder.yml, as in the zip files of OPUS-MT. The imported model is compared with the
original, which transformers or CTranslate2 loads: the ids of the text, the log-probability of each token, and
the text of greedy search. A difference deletes it and is an error.

It needs the extra packages of nmt[export].
"""

from __future__ import annotations

from nmt.cli.app import run
from nmt.config import ImportConfig


def import_model(config: ImportConfig) -> None:
    """Imports as `config` says, and raises as `nmt.interop.tasks.import_model`."""
    from nmt.interop.tasks import import_model  # imports torch, for which --help does not wait

    import_model(config)


def main() -> None:
    """Entry point of `nmt-import`."""
    run(import_model, ImportConfig, "import", __doc__ or "")


if __name__ == "__main__":
    main()
