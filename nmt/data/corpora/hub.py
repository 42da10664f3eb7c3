"""Data sets of the Hugging Face hub, or local folders of the same layout, read with `datasets`.

The commits of the data sets of a run are determined when the run begins, and fixed from then on.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from nmt.config import DataConfig, HubConfig, NamedConfig
from nmt.data.cache import fingerprint
from nmt.data.corpora.arrow import arrow_blocks, arrow_names, arrow_type
from nmt.data.corpora.columns import Pair, TextBlock, choose_keys
from nmt.data.corpora.text import file_facts
from nmt.errors import UserError
from nmt.runtime.files import expanded, stat_or_none
from nmt.runtime.guest import guest
from nmt.runtime.hub import brief, is_commit, is_unreachable, quiet_hub, require_commit
from nmt.runtime.os_errors import file_error, reason_of
from nmt.runtime.streams import log

N = TypeVar("N", bound=NamedConfig)
_BLOCK_ROWS = 1024  # rows per block; a row may be a whole document
_PATTERN = re.compile(r"[*?\[]|::")
"""Matches text that `datasets` interprets as a pattern, or as an address inside another."""
_LOCAL_FILES = "two text files (data=local data.train.source=... data.train.target=...)"


@dataclass(frozen=True)
class HubSplit:
    """A split of a data set, on the disk of this machine and memory-mapped."""

    name: str
    facts: dict[str, Any]
    keys: Pair
    """The columns of source and target."""
    dataset: Any = field(repr=False)
    """A `datasets.Dataset`."""

    @property
    def num_pairs(self) -> int:
        """Number of pairs."""
        return int(self.dataset.num_rows)

    def blocks(self, malformed: object = None) -> Iterator[TextBlock]:
        """Yields the pairs in order, block by block. A missing side is empty; no row is malformed."""
        tables = self.dataset.with_format("arrow").iter(batch_size=_BLOCK_ROWS)
        return arrow_blocks(tables, self.keys, self.name)


def open_hub(data: DataConfig, split: str, key: str) -> HubSplit:
    """Opens a split of `data.hub`. The first use downloads the data set.

    The split may be slices and sums such as `train[:10%]+validation`; `key` is its option, such as
    `data.train`.

    Raises:
        UserError: the data set, its configuration, revision, split or columns do not exist, or it is neither
            on the network nor in the cache.
    """
    datasets, title = _quiet_datasets(), _title(data.hub)
    folder = local_folder(data.hub)
    if folder:
        _require_plain_name(f"data.hub.path={data.hub.path}", folder)
        builder = _local_builder(datasets, folder, data.hub)
    else:  # at one commit; without a network, the cached version
        builder = _cached_builder(datasets, data.hub) or _load_builder(
            datasets, data.hub, *_resolve(data.hub)
        )
    splits = [str(name) for name in (builder.config.data_files or builder.info.splits or ())]
    bases = [part.split("[")[0] for part in split.split("+")]
    if splits and not set(bases) <= set(splits):
        raise UserError(f"{key}.split={split}: not a split of {title}, which has {', '.join(splits)}")
    _prepare(datasets, builder, data.hub, local=folder is not None)
    try:
        dataset = builder.as_dataset(split=split)
    except ValueError as error:
        raise UserError(f"{key}.split={split}: {brief(error)}") from None
    schema = dataset.features.arrow_schema
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
    return HubSplit(f"{title} {split}", facts, keys, dataset)


def local_folder(hub: HubConfig) -> Path | None:
    """Returns the folder that `path` names, or None if it names a data set of the hub."""
    assert hub.path is not None
    folder = expanded(hub.path).absolute()  # absolute: `datasets` takes `json` or `csv` for a format
    try:
        status = stat_or_none(folder)
    except OSError as error:
        raise UserError(f"data.hub.path={hub.path}: {reason_of(error, 'read')}") from error
    return folder if status is not None and stat.S_ISDIR(status.st_mode) else None


def _require_plain_name(option: str, folder: Path) -> None:
    """Refuses the name of a folder that `datasets` would interpret as a pattern."""
    pattern = _PATTERN.search(str(folder))
    if pattern:
        raise UserError(
            f"{option}: {folder} has {pattern[0]} in its name, a pattern to `datasets`. Rename it."
        )


def commit_of(hub: HubConfig) -> str | None:
    """Determines the current commit of a hub data set; without a network, the commit in the cache.

    Returns:
        The commit, or `hub.revision` if an old version of `datasets` wrote the cache without the commit.

    Raises:
        UserError: there is no such data set or revision, or it is neither on the network nor in the cache.
    """
    if is_commit(hub.revision):
        return hub.revision
    commit, network_error = _resolve(hub)
    version = commit or _load_builder(_quiet_datasets(), hub, commit, network_error).hash
    return version if is_commit(version) else hub.revision


def _quiet_datasets() -> Any:
    """Imports `datasets`, which is slow. Disables its warnings, and its progress bars unless on a terminal.

    In a call from another program, the logging of `datasets` is not changed.
    """
    quiet_hub()
    import datasets

    if guest() is None:
        logging.getLogger("datasets").setLevel(logging.ERROR)
        if not sys.stderr.isatty():
            datasets.disable_progress_bars()
    return datasets


def _title(hub: HubConfig) -> str:
    return f"{hub.path} {hub.name}" if hub.name else str(hub.path)


def _local_builder(datasets: Any, folder: Path, hub: HubConfig) -> Any:
    """Returns a builder for a local folder. A configuration is an entry of its README, or a subfolder."""
    try:
        configs = datasets.get_dataset_config_names(str(folder))
        if hub.name is None or hub.name in configs:
            return _builder_by_content(datasets, folder, name=hub.name)
        if (folder / hub.name).is_dir():
            _require_plain_name(f"data.hub.name={hub.name}", folder / hub.name)
            return _builder_by_content(datasets, folder, data_dir=hub.name)
    except UserError:
        raise
    except RuntimeError as error:  # the data set is a script
        raise UserError(
            f"data.hub.path={hub.path}: {brief(error)}. Convert it to Parquet, or give {_LOCAL_FILES}."
        ) from None
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        line = file_error(error, folder, "read") if isinstance(error, OSError) and error.errno else None
        hint = "" if line is None or str(folder) in str(line) else " (HF_HOME=FOLDER)"  # its cache
        raise UserError(f"data.hub.path={hub.path}: {line or brief(error)}{hint}") from None
    except Exception as error:
        if not type(error).__module__.startswith("yaml"):
            raise
        raise UserError(f"data.hub.path={hub.path}: its README.md is damaged: {brief(error)}") from None
    folders = [inner.name for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith(".")]
    known = ", ".join(sorted({*configs, *folders} - {"default"}))
    raise UserError(
        f"data.hub.name={hub.name}: not a configuration of {hub.path}, "
        + (f"which has {known}" if known else "which has only the default. Set data.hub.name=null.")
    )


def _builder_by_content(datasets: Any, folder: Path, **chosen: str | None) -> Any:
    """Returns a builder whose cache folder depends on the content of the folder's files.

    The cache of `datasets` depends only on path and time of change. For a file replaced by one with the same
    time, it would read the old copy.
    """
    builder = datasets.load_dataset_builder(str(folder), **chosen)
    contents = {
        str(split): [file_facts(Path(file)) for file in files]
        for split, files in (builder.config.data_files or {}).items()
    }
    cache = expanded(_cache(datasets)) / "by-content" / fingerprint(contents)[:16]
    return datasets.load_dataset_builder(str(folder), cache_dir=str(cache), **chosen)


def _cached_builder(datasets: Any, hub: HubConfig) -> Any:
    """Returns a builder for the cached version of a data set at `hub.revision`; None if there is none.

    Without a network, `datasets` itself would use the commit cached last.
    """
    from datasets.packaged_modules.cache.cache import Cache

    if not is_commit(hub.revision):
        return None
    name = hub.name or "default"  # another name of the default is known only to the hub
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


def _load_builder(datasets: Any, hub: HubConfig, revision: str | None, network_error: str) -> Any:
    """Returns a builder for the commit that `_resolve` found, or for the cached version."""
    from datasets.packaged_modules.cache.cache import Cache

    try:
        with _offline(datasets) if network_error else contextlib.nullcontext():
            builder = datasets.load_dataset_builder(hub.path, name=hub.name, revision=revision)
    except Exception as error:
        if is_unreachable(error):
            raise UserError(_unreachable(datasets, hub, network_error or brief(error))) from None
        if isinstance(error, (ValueError, RuntimeError)):  # no such configuration, or a script
            raise UserError(f"data.hub.path={hub.path} data.hub.name={hub.name}: {brief(error)}") from None
        raise
    if is_commit(hub.revision):
        # If the network failed after `_resolve`, `datasets` has used its cache.
        if isinstance(builder, Cache) and builder.hash != hub.revision:
            raise UserError(
                f"data.hub.revision={hub.revision}: the hub could not be reached "
                f"({network_error or 'any longer'}), and the cache has only {builder.hash}"
            )
    elif network_error:
        log.warning(
            "%s: the hub could not be reached (%s). Using revision %s from the cache.",
            _title(hub), network_error, builder.hash,
        )  # fmt: skip
    return builder


def _resolve(hub: HubConfig) -> tuple[str | None, str]:
    """Returns the commit of the data set on the hub and an empty text, or None and the network error."""
    from huggingface_hub import HfApi, errors

    try:
        answer = HfApi().dataset_info(str(hub.path), revision=hub.revision, timeout=20)
        return require_commit(answer.sha), ""
    except errors.RevisionNotFoundError:
        raise UserError(f"data.hub.revision={hub.revision}: not a revision of {hub.path}") from None
    except (
        errors.RepositoryNotFoundError,
        errors.HFValidationError,
    ) as error:  # a gated data set counts as not found
        raise UserError(
            f"data.hub.path={hub.path}: neither a local folder nor a hub data set that you may read "
            f"({brief(error)}). To use local text, give {_LOCAL_FILES}."
        ) from None
    except Exception as error:
        if not is_unreachable(error):
            raise
        return None, brief(error)


@contextlib.contextmanager
def _offline(datasets: Any) -> Iterator[None]:
    """Makes `datasets` use only its cache. Otherwise it would try the network for half a minute."""
    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def _prepare(datasets: Any, builder: Any, hub: HubConfig, local: bool) -> None:
    """Downloads the data set and stores it as Arrow files, unless they exist."""
    try:
        # A folder may contain part of a data set, but its README has the sizes of the whole.
        builder.download_and_prepare(verification_mode="no_checks" if local else "basic_checks")
    except datasets.exceptions.DatasetsError as error:
        cause = error.__cause__ or error
        if is_unreachable(cause) and not local:
            raise UserError(_unreachable(datasets, hub, brief(cause))) from None
        raise UserError(f"data.hub.path={hub.path}: could not be read: {brief(cause)}") from None
    except Exception as error:
        if not is_unreachable(error):
            raise
        if local or getattr(error, "errno", None) is not None:
            raise UserError(f"data.hub.path={hub.path}: {error} (the cache is {_cache(datasets)})") from None
        raise UserError(_unreachable(datasets, hub, brief(error))) from None


def _unreachable(datasets: Any, hub: HubConfig, network_error: str) -> str:
    return (
        f"data.hub.path={hub.path}: {_title(hub)} could not be downloaded ({network_error}) and is not in "
        f"the cache ({_cache(datasets)}). Connect to the network once, set data.hub.path to a local copy, "
        f"or give {_LOCAL_FILES}."
    )


def _cache(datasets: Any) -> str:
    return str(datasets.config.HF_DATASETS_CACHE)


def hub_of(named: NamedConfig, data: DataConfig) -> HubConfig:
    """Returns the hub options of a part; what it lacks comes from `data.hub`, unless it has another set."""
    specific, shared = named.hub, data.hub
    if specific.path is not None:
        return specific
    return HubConfig(shared.path, specific.name or shared.name, specific.revision or shared.revision)


def with_commits(data: DataConfig, begun: DataConfig | None) -> DataConfig:
    """Returns the options with a commit as the revision of every hub data set that the run reads.

    If a run that has `begun` is resumed, its revisions are retained unless `data` gives another commit, and
    the hub is not asked.

    Raises:
        UserError: a data set or its revision does not exist, or is neither on the network nor in the cache.
    """
    revisions = _commits(data) if begun is None else _commits_of_run(data, begun)

    def revised(key: str, hub: HubConfig) -> HubConfig:
        return replace(hub, revision=revisions.get(key, hub.revision))

    def all_revised(key: str, parts: Mapping[str, N]) -> dict[str, N]:
        return {
            name: replace(named, hub=revised(f"{key}.{name}", named.hub)) for name, named in parts.items()
        }

    return replace(
        data,
        hub=revised("data", data.hub),
        train=replace(data.train, corpora=all_revised("data.train.corpora", data.train.corpora)),
        valid=replace(data.valid, sets=all_revised("data.valid.sets", data.valid.sets)),
        test=replace(data.test, sets=all_revised("data.test.sets", data.test.sets)),
    )


def _commits(data: DataConfig) -> dict[str, str | None]:
    """Returns the current commits of the data sets that the run reads, by the option that names the set."""
    read = {"data": data.hub} if any(s.split for s in (data.train, data.valid, data.test)) else {}
    read |= {key: hub_of(named, data) for key, named in data.named().items() if named.split}
    commits: dict[str, str | None] = {}
    known: dict[tuple[str | None, ...], str | None] = {}  # one request per data set
    for key, hub in read.items():
        if hub.path and local_folder(hub) is None:
            if astuple(hub) not in known:
                known[astuple(hub)] = _commit(key, hub, data)
            commits[key] = known[astuple(hub)]
    return commits


def _commit(key: str, hub: HubConfig, data: DataConfig) -> str | None:
    try:
        return commit_of(hub)
    except UserError as error:
        if hub.path == data.hub.path:
            raise
        raise UserError(str(error).replace("data.hub.", f"{key}.hub.")) from error


def _commits_of_run(data: DataConfig, begun: DataConfig) -> dict[str, str | None]:
    """Returns the commits that the run began with, except where `data` gives another commit."""
    commits = {key: hub.revision for key, hub in _hubs(begun).items() if is_commit(hub.revision)}
    retained: dict[str, str | None] = {}
    for key, hub in _hubs(data).items():
        if key in commits and not is_commit(hub.revision):
            retained[key] = commits[key]
            if hub.revision:
                log.info("%s.hub.revision=%s: the resumed run uses %s", key, hub.revision, commits[key])
    return retained


def _hubs(data: DataConfig) -> dict[str, HubConfig]:
    """Returns the options of all hub data sets, by the name of their section."""
    return {"data": data.hub} | {key: named.hub for key, named in data.named().items()}
