"""The commits of the hub data sets of a run: determined when the run begins, and fixed from then on."""

from __future__ import annotations

from dataclasses import astuple, replace

from nmt.config import DataConfig, HubConfig
from nmt.data.corpora.hub import commit_of, local_folder
from nmt.data.corpora.sources import hub_of
from nmt.errors import UserError
from nmt.runtime import log
from nmt.runtime.hub import is_commit


def with_commits(data: DataConfig, begun: DataConfig | None) -> DataConfig:
    """Returns the options with a commit as the revision of every hub data set that the run reads.

    Args:
        data: the options.
        begun: the options of the run that is resumed, or None. Its revisions are retained unless `data` gives
            another commit, and the hub is not asked.

    Raises:
        UserError: a data set or its revision does not exist, or is neither on the network nor in the cache.
    """
    revisions = _commits(data) if begun is None else _commits_of_run(data, begun)

    def revised(key: str, hub: HubConfig) -> HubConfig:
        return replace(hub, revision=revisions.get(key, hub.revision))

    corpora = {
        name: replace(corpus, hub=revised(_key(name), corpus.hub))
        for name, corpus in data.train.corpora.items()
    }
    return replace(data, hub=revised("data", data.hub), train=replace(data.train, corpora=corpora))


def _commits(data: DataConfig) -> dict[str, str | None]:
    """Returns the current commits of the data sets that the run reads, by the option that names the set."""
    read = {"data": data.hub} if any(s.split for s in (data.train, data.valid, data.test)) else {}
    for name, corpus in data.train.corpora.items():
        if corpus.split:
            read[_key(name)] = hub_of(corpus, data)
    commits: dict[str, str | None] = {}
    found: dict[tuple[str | None, ...], str | None] = {}  # one request per data set
    for key, hub in read.items():
        if hub.path and local_folder(hub) is None:
            if astuple(hub) not in found:
                found[astuple(hub)] = _commit(key, hub, data)
            commits[key] = found[astuple(hub)]
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
    return {"data": data.hub} | {_key(name): corpus.hub for name, corpus in data.train.corpora.items()}


def _key(corpus: str) -> str:
    return f"data.train.corpora.{corpus}"
