"""Loading model folders into a translator, on the device and in the precision of the options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nmt.config import DecodingConfig, EvalConfig, Precision, TranslateConfig, folders
from nmt.errors import UserError
from nmt.runtime.machine import choose_device, choose_precision, set_threads
from nmt.runtime.plugins import naming_plugins

if TYPE_CHECKING:
    import torch

    from nmt.bundle import Bundle
    from nmt.decoding.candidates import Utility
    from nmt.decoding.pairs import PairReader
    from nmt.decoding.translator import Translator


@dataclass(frozen=True)
class LoadedModels:
    """Loaded models with the same vocabulary, and the device and precision to compute in."""

    bundles: Sequence[Bundle]
    device: torch.device
    precision: Precision

    @classmethod
    def load(cls, config: TranslateConfig) -> LoadedModels:
        """Loads the models of `config.model_dir`.

        Raises:
            UserError: the device or the precision is not available, a folder is not a model folder or is
                damaged, or the vocabularies differ.
        """
        from nmt.bundle import load_bundles  # imports torch, for which --help does not wait

        device, precision = set_up(config)
        return cls(load_bundles(folders("model_dir", config.model_dir)), device, precision)

    def readers(
        self, decoding: DecodingConfig, utility: Utility | None = None
    ) -> tuple[Translator, PairReader]:
        """Builds a translator and a reader of given pairs with these options; moves the models to the device.

        `utility` is that of `decoding.mbr`; None if that is not set.

        Raises:
            UserError: an option is wrong.
        """
        # They import torch, for which --help does not wait.
        from nmt.decoding import alignment, facts, pairs, torch_searcher, translator

        tokenizer = self.bundles[0].tokenizer
        heads = [alignment.AlignmentHeads.from_results(bundle.results) for bundle in self.bundles]
        with naming_plugins(self.bundles[0].config.plugins):
            searcher = torch_searcher.TorchSearcher(
                [bundle.model for bundle in self.bundles],
                tokenizer,
                decoding,
                device=self.device,
                precision=self.precision,
                heads=heads,
            )
        return (
            translator.Translator(
                searcher,
                tokenizer,
                utility=utility,
                facts=facts.TextFacts.of(self.bundles[0].config.data, self.bundles[0].results),
            ),
            pairs.PairReader(searcher, tokenizer),
        )


def set_up(config: TranslateConfig | EvalConfig) -> tuple[torch.device, Precision]:
    """Sets the number of threads of this process; returns the device and the precision to compute in.

    Raises:
        UserError: the device or the precision is unknown or not available.
    """
    if config.precision not in Precision.__members__:
        raise UserError(f"precision={config.precision}: must be one of {', '.join(Precision.__members__)}.")
    set_threads(config.threads)
    device = choose_device(config.device)
    return device, choose_precision(Precision[config.precision], device)
