"""Data sets of the Hugging Face hub, or local folders of the same layout, through `datasets`."""

from __future__ import annotations

import contextlib
import glob
import logging
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.config import DataConfig, HubConfig
from nmt.data.cache import fingerprint
from nmt.data.corpora.tables import Block, Pair, arrow_blocks, arrow_names, arrow_type, choose_keys
from nmt.data.corpora.text import file_facts
from nmt.errors import UserError
from nmt.runtime import expanded, file_error, guest, log, reason_of, stat_or_none

_BLOCK_ROWS = 1024  # read at a time; they may be whole documents
_PATTERN = re.compile(r"[*?\[]|::")
"""What `datasets` reads as a pattern, or as one address inside another."""
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
    folder = local_folder(data.hub)
    if folder:
        _require_plain_name(f"data.hub.path={data.hub.path}", folder)
    builder = _local_builder(datasets, folder, data.hub) if folder else _remote_builder(datasets, data.hub)
    splits = [str(name) for name in (builder.config.data_files or builder.info.splits or ())]
    bases = [part.split("[")[0] for part in split.split("+")]
    if splits and not set(bases) <= set(splits):
        raise UserError(
            f"{key}.split={split}: {_title(data.hub)} has no such split, only {', '.join(splits)}"
        )
    _prepare(datasets, builder, data.hub, local=folder is not None)
    try:
        dataset = builder.as_dataset(split=split)
    except ValueError as error:
        raise UserError(f"{key}.split={split}: {_brief(error)}") from None
    schema = dataset.features.arrow_schema
    title = _title(data.hub)
    keys = choose_keys(
        data, lambda name: arrow_type(schema, name, title) is not None, arrow_names(schema), title
    )
    facts: dict[str, Any] = {
        "config": data.hub.name,
        "split": split,
        "num_pairs": dataset.num_rows,
        "keys": list(keys),
    }
    if folder:
        files = sorted({Path(file) for base in bases for file in builder.config.data_files[base]})
        facts |= {"folder": folder.resolve().name, "files": [file_facts(file) for file in files]}
    else:
        facts |= {"hub": data.hub.path, "revision": builder.hash}
    return HubSplit(f"{_title(data.hub)} {split}", facts, keys, dataset)


def local_folder(hub: HubConfig) -> Path | None:
    """The folder that `path` names; None if it names a set of the hub."""
    assert hub.path is not None
    folder = expanded(hub.path).absolute()  # `datasets` reads a bare `json` or `csv` as a format
    try:
        there = stat_or_none(folder)
    except OSError as error:
        raise UserError(f"data.hub.path={hub.path}: {reason_of(error, 'read')}") from error
    return folder if there is not None and stat.S_ISDIR(there.st_mode) else None


def _require_plain_name(option: str, folder: Path) -> None:
    """Makes sure that `datasets` takes the name of a folder as it stands.

    Raises:
        UserError: it would take it for a pattern.
    """
    found = _PATTERN.search(str(folder))
    if found:
        raise UserError(f"{option}: {folder} has {found[0]} in its name, a pattern to `datasets`. Rename it.")


def is_commit(revision: str | None) -> bool:
    """Whether a revision means the same for ever."""
    return _COMMIT.fullmatch(revision or "") is not None


def commit_of(hub: HubConfig) -> str | None:
    """The commit that a set of the hub has now; without a network, the one that the cache holds.

    Returns:
        `hub.revision` where the cache does not tell, because an old version of `datasets` wrote it.

    Raises:
        UserError: there is no such set or revision, or neither the network nor the cache knows.
    """
    if is_commit(hub.revision):
        return hub.revision
    commit, trouble = _resolve(hub)
    found = commit or _loaded(_quiet_datasets(), hub, commit, trouble).hash
    return found if is_commit(found) else hub.revision


def _quiet_datasets() -> Any:
    """Imports `datasets`, which is slow, and keeps it quiet: bars only on a terminal, no chatter.

    A program that imports nmt decides itself how quiet it is.
    """
    import datasets
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if guest() is not None:
        return datasets
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
            return _stored_by_content(datasets, folder, name=hub.name)
        if (folder / hub.name).is_dir():
            _require_plain_name(f"data.hub.name={hub.name}", folder / hub.name)
            return _stored_by_content(datasets, folder, data_dir=hub.name)
    except UserError:
        raise
    except RuntimeError as error:  # a set that is a program
        raise UserError(
            f"data.hub.path={hub.path}: {_brief(error)}; convert it to Parquet, or give {_LOCAL_FILES}"
        ) from None
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        line = file_error(error, folder, "read") if isinstance(error, OSError) and error.errno else None
        raise UserError(f"data.hub.path={hub.path}: {line or _brief(error)}") from None
    except Exception as error:
        if not type(error).__module__.startswith("yaml"):
            raise
        raise UserError(f"data.hub.path={hub.path}: its README.md is damaged: {_brief(error)}") from None
    folders = [inner.name for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith(".")]
    known = ", ".join(sorted({*configs, *folders} - {"default"}))
    raise UserError(
        f"data.hub.name={hub.name}: {hub.path} has no such configuration, "
        + (f"only {known}" if known else "and no other: set data.hub.name=null")
    )


def _stored_by_content(datasets: Any, folder: Path, **chosen: str | None) -> Any:
    """A builder that keeps its Arrow files apart for each content of the folder's files.

    `datasets` itself tells them by path and time of change, so of a file that was replaced by one with the
    same time it would read the copy made before.
    """
    builder = datasets.load_dataset_builder(str(folder), **chosen)
    contents = {
        str(split): [file_facts(Path(file)) for file in files]
        for split, files in (builder.config.data_files or {}).items()
    }
    cache = expanded(_cache(datasets)) / "by-content" / fingerprint(contents)[:16]
    return datasets.load_dataset_builder(str(folder), cache_dir=str(cache), **chosen)


def _remote_builder(datasets: Any, hub: HubConfig) -> Any:
    """A builder for a set of the hub at one commit; without a network, for what the cache holds of it."""
    return _stored(datasets, hub) or _loaded(datasets, hub, *_resolve(hub))


def _stored(datasets: Any, hub: HubConfig) -> Any:
    """A builder for what the cache holds of a set at the commit that is asked for; None if it holds nothing.

    Without a network `datasets` itself takes whatever commit came last.
    """
    from datasets.packaged_modules.cache.cache import Cache

    if not is_commit(hub.revision):
        return None
    name = hub.name or "default"  # the set may call its default otherwise, which the hub will tell
    folders = expanded(_cache(datasets)).glob(f"*/{glob.escape(name)}/*/{hub.revision}")
    for folder in folders:
        builder = Cache(
            repo_id=hub.path,
            dataset_name=str(hub.path).rpartition("/")[2],
            config_name=name,
            version=folder.parent.name,
            hash=hub.revision,
        )
        if Path(builder.cache_dir) == folder and builder.info.splits:
            return builder
    return None


def _loaded(datasets: Any, hub: HubConfig, revision: str | None, trouble: str) -> Any:
    """A builder for the commit that `_resolve` found, or for what the cache holds."""
    from datasets.packaged_modules.cache.cache import Cache

    try:
        with _offline(datasets) if trouble else contextlib.nullcontext():
            builder = datasets.load_dataset_builder(hub.path, name=hub.name, revision=revision)
    except Exception as error:
        if _is_network(error):
            raise UserError(_unreachable(datasets, hub, trouble or _brief(error))) from None
        if isinstance(error, (ValueError, RuntimeError)):  # no such configuration; a set that is a program
            raise UserError(f"data.hub.path={hub.path} data.hub.name={hub.name}: {_brief(error)}") from None
        raise
    if is_commit(hub.revision):
        # The network may also have gone since `_resolve`, and `datasets` taken what it had.
        if isinstance(builder, Cache) and builder.hash != hub.revision:
            raise UserError(
                f"data.hub.revision={hub.revision}: the hub could not be reached ({trouble or 'any longer'})"
                f", and the cache holds {builder.hash} only"
            )
    elif trouble:
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
