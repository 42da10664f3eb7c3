"""The toy corpus, and the same corpus prepared: that is done once, and each test gets a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from toy_corpus import SHARD, write_corpus

from nmt.config import DataConfig
from nmt.data.preparation.prepare import prepare


@pytest.fixture(scope="session")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(write_corpus(folder), shard_pairs=SHARD)
    return folder


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    return write_corpus(tmp_path)


@pytest.fixture
def prepared_config(config: DataConfig, prepared_folder: Path) -> DataConfig:
    shutil.copytree(prepared_folder / "cache", str(config.cache_dir))
    return config
