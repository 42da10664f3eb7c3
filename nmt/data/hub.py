"""Data sets of the Hugging Face hub, or local folders of the same layout, through `datasets`."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.config import DataConfig, HubConfig
from nmt.data.tables import Block, Pair, arrow_blocks, arrow_names, arrow_type, choose_keys
from nmt.data.text import file_facts
from nmt.errors import UserError
from nmt.runtime import log

_BLOCK_ROWS = 8192
_COMMIT = re.compile("[0-9a-f]{40}")
_LOCAL_FILES = "two text files (data=local data.train.source=... data.train.target=...)"


@dataclass(frozen=True)
class HubSplit:
    """One split of a data set, stored on this machine and memory-mapped."""

    name: str
    facts: dict[str, Any]
    keys: Pair
    """The columns of source and target."""
    dataset: Any = field(repr=False)
    """A `datasets.Dataset`."""

    @property
    def num_pairs(self) -> int:
        """How many pairs it has."""
        return int(self.dataset.num_rows)

    def blocks(self) -> Iterator[Block]:
        """Yields the pairs in order, some at a time; a missing side is empty."""
        tables = self.dataset.with_format("arrow").iter(batch_size=_BLOCK_ROWS)
        return arrow_blocks(tables, self.keys, self.name)


def open_hub(data: DataConfig, split: str, key: str) -> HubSplit:
    """Opens a split of `data.hub`, downloading the set at first use.

    Args:
        data: names the set, its languages and columns.
        split: such as `train`; slices and sums such as `train[:10%]+validation` are understood.
        key: full name of the option that asked, such as `data.train`.

    Raises:
        UserError: the set, its configuration, revision, split or columns are not there, or it can be had
            neither from the network nor from the cache.
    """
    datasets = _quiet_datasets()
    path = data.hub.path
    assert path is not None
    local = Path(path).expanduser().absolute()  # `datasets` reads a bare `json` or `csv` as a format
    builder = (
        _local_builder(datasets, local, data.hub) if local.is_dir() else _remote_builder(datasets, data.hub)
    )
    splits = [str(name) for name in (builder.config.data_files or builder.info.splits or ())]
    bases = [part.split("[")[0] for part in split.split("+")]
    if splits and not set(bases) <= set(splits):
        raise UserError(
            f"{key}.split={split}: {_title(data.hub)} has no such split, only {', '.join(splits)}"
        )
    _prepare(datasets, builder, data.hub, local.is_dir())
    try:
        dataset = builder.as_dataset(split=split)
    except ValueError as error:
        raise UserError(f"{key}.split={split}: {_brief(error)}") from None
    schema = dataset.features.arrow_schema
    keys = choose_keys(
        data, lambda name: arrow_type(schema, name) is not None, arrow_names(schema), _title(data.hub)
    )
    facts: dict[str, Any] = {
        "config": data.hub.name,
        "split": split,
        "num_pairs": dataset.num_rows,
        "keys": list(keys),
    }
    if local.is_dir():
        files = sorted({Path(file) for base in bases for file in builder.config.data_files[base]})
        facts |= {"folder": local.resolve().name, "files": [file_facts(file) for file in files]}
    else:
        facts |= {"hub": path, "revision": builder.hash}
    return HubSplit(f"{_title(data.hub)} {split}", facts, keys, dataset)


def _quiet_datasets() -> Any:
    """Imports `datasets`, which is slow, and keeps it quiet: bars only on a terminal, no chatter."""
    import datasets
    from huggingface_hub.utils.tqdm import disable_progress_bars

    for library in ("datasets", "huggingface_hub"):
        logging.getLogger(library).setLevel(logging.ERROR)
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        disable_progress_bars()
    return datasets


def _title(hub: HubConfig) -> str:
    return f"{hub.path} {hub.name}" if hub.name else str(hub.path)


def _local_builder(datasets: Any, folder: Path, hub: HubConfig) -> Any:
    """A builder for a folder whose configuration its README names, or which has a folder of that name."""
    try:
        configs = datasets.get_dataset_config_names(str(folder))
        if hub.name is None or hub.name in configs:
            return datasets.load_dataset_builder(str(folder), name=hub.name)
        if (folder / hub.name).is_dir():
            return datasets.load_dataset_builder(str(folder), data_dir=hub.name)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(f"data.hub.path={hub.path}: {_brief(error)}") from None
    folders = [inner.name for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith(".")]
    known = ", ".join(sorted({*configs, *folders} - {"default"}))
    raise UserError(
        f"data.hub.name={hub.name}: {hub.path} has no such configuration, "
        + (f"only {known}" if known else "and no other: set data.hub.name=null")
    )


def _remote_builder(datasets: Any, hub: HubConfig) -> Any:
    """A builder for a set of the hub at one commit; without a network, for what the cache holds of it."""
    revision, trouble = _resolve(hub)
    try:
        with _offline(datasets) if trouble else contextlib.nullcontext():
            builder = datasets.load_dataset_builder(hub.path, name=hub.name, revision=revision)
    except Exception as error:
        if _is_network(error):
            raise UserError(_unreachable(datasets, hub, trouble or _brief(error))) from None
        if isinstance(error, (ValueError, RuntimeError)):  # no such configuration; a set that is a program
            raise UserError(f"data.hub.path={hub.path} data.hub.name={hub.name}: {_brief(error)}") from None
        raise
    if trouble:
        if _COMMIT.fullmatch(hub.revision or "") and builder.hash != hub.revision:
            raise UserError(
                f"data.hub.revision={hub.revision}: the hub could not be reached ({trouble}), "
                f"and the cache holds {builder.hash} only"
            )
        log.warning(
            "%s: the hub could not be reached (%s); taking revision %s from the cache",
            _title(hub), trouble, builder.hash,
        )  # fmt: skip
    return builder


def _resolve(hub: HubConfig) -> tuple[str | None, str]:
    """The commit of the set on the hub, or None and what kept it from being reached."""
    from huggingface_hub import HfApi, errors

    try:
        return HfApi().dataset_info(str(hub.path), revision=hub.revision, timeout=20).sha, ""
    except errors.RevisionNotFoundError:
        raise UserError(f"data.hub.revision={hub.revision}: {hub.path} has no such revision") from None
    except (
        errors.RepositoryNotFoundError,
        errors.HFValidationError,
    ) as error:  # a gated set counts as not found
        raise UserError(
            f"data.hub.path={hub.path}: neither a folder here nor a data set of the hub that you may read "
            f"({_brief(error)}); to use your own text, give {_LOCAL_FILES}"
        ) from None
    except Exception as error:
        if not _is_network(error):
            raise
        return None, _brief(error)


def _is_network(error: BaseException) -> bool:
    """Whether an error tells of the network: which it is depends on the hub library's version."""
    return isinstance(error, OSError) or type(error).__module__.split(".")[0].startswith(("http", "requests"))


@contextlib.contextmanager
def _offline(datasets: Any) -> Iterator[None]:
    """Sends `datasets` straight to its cache; it would try the network for half a minute first."""
    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def _prepare(datasets: Any, builder: Any, hub: HubConfig, local: bool) -> None:
    """Downloads the set and stores it as Arrow files, unless that was done before."""
    try:
        # A folder may hold part of a set whose README tells the sizes of the whole.
        builder.download_and_prepare(verification_mode="no_checks" if local else "basic_checks")
    except datasets.exceptions.DatasetsError as error:
        cause = error.__cause__ or error
        if _is_network(cause) and not local:
            raise UserError(_unreachable(datasets, hub, _brief(cause))) from None
        raise UserError(f"data.hub.path={hub.path}: could not be read: {_brief(cause)}") from None
    except Exception as error:
        if not _is_network(error):
            raise
        if local or getattr(error, "errno", None) is not None:
            raise UserError(f"data.hub.path={hub.path}: {error}; the cache is {_cache(datasets)}") from None
        raise UserError(_unreachable(datasets, hub, _brief(error))) from None


def _unreachable(datasets: Any, hub: HubConfig, trouble: str) -> str:
    return (
        f"data.hub.path={hub.path}: {_title(hub)} could not be fetched ({trouble}) and is not in the cache "
        f"({_cache(datasets)}): connect to the network once, set data.hub.path to a local copy, "
        f"or give {_LOCAL_FILES}"
    )


def _cache(datasets: Any) -> str:
    return str(datasets.config.HF_DATASETS_CACHE)


def _brief(error: BaseException) -> str:
    """An error of another library in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
