"""Every file of configs/data fits the typed options and is complete except for the values it requires."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nmt.config import DataConfig
from nmt.data.corpora.corpus import is_given

FILES = sorted((Path(__file__).parents[4] / "configs" / "data").glob("*.yaml"))


def test_all_are_here() -> None:
    assert [file.stem for file in FILES] == [
        "local", "multi30k", "quickstart", "wmt14_de_en", "wmt14_fr_en", "wmt16_de_en", "wmt16_ro_en",
        "wmt17_de_en", "wmt17_zh_en", "wmt19_de_en", "wmt19_zh_en",
    ]  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_fits_the_options(file: Path) -> None:
    given = OmegaConf.load(file)
    missing = OmegaConf.missing_keys(given)
    assert missing == ({"source_lang", "target_lang"} if file.stem == "local" else set())
    filled = OmegaConf.merge(OmegaConf.structured(DataConfig), given, {key: "xx" for key in missing})
    data = OmegaConf.to_object(filled)
    assert isinstance(data, DataConfig)
    assert data.name == file.stem
    assert data.tokenizer.joint  # the default model ties all embeddings, so it needs a joint vocabulary
    if file.stem != "local":
        assert is_given(data.train) and is_given(data.valid) and is_given(data.test)
        assert data.source_lang == "en"
        assert file.stem in ("quickstart", "multi30k") or data.hub.name == f"{data.target_lang}-en"
