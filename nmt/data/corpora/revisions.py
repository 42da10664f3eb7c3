"""The commit of each hub data set that a run reads: found when the run begins, and kept from then on."""

from __future__ import annotations

from dataclasses import astuple, replace

from nmt.config import DataConfig, HubConfig
from nmt.data.corpora.hub import commit_of, is_commit, local_folder
from nmt.data.corpora.sources import hub_of
from nmt.errors import UserError
from nmt.runtime import log


def with_commits(data: DataConfig, begun: DataConfig | None) -> DataConfig:
    """The options with a commit as the revision of every set of the hub that is read.

    Args:
        data: the options.
        begun: those of the run that is gone on with, if any: its revisions stay, unless `data` gives another
            commit, and nobody asks the hub.

    Raises:
        UserError: a set or its revision is not there, or neither the network nor the cache knows it.
    """
    revisions = _commits(data) if begun is None else _kept(data, begun)

    def revised(key: str, hub: HubConfig) -> HubConfig:
        return replace(hub, revision=revisions.get(key, hub.revision))

    corpora = {
        name: replace(corpus, hub=revised(_key(name), corpus.hub))
        for name, corpus in data.train.corpora.items()
    }
    return replace(data, hub=revised("data", data.hub), train=replace(data.train, corpora=corpora))


def _commits(data: DataConfig) -> dict[str, str | None]:
    """The commits of the sets that are read, as they are now: where the set is named → commit."""
    read = {"data": data.hub} if any(s.split for s in (data.train, data.valid, data.test)) else {}
    for name, corpus in data.train.corpora.items():
        if corpus.split:
            read[_key(name)] = hub_of(corpus, data)
    commits: dict[str, str | None] = {}
    found: dict[tuple[str | None, ...], str | None] = {}  # the hub is asked once for each
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


def _kept(data: DataConfig, begun: DataConfig) -> dict[str, str | None]:
    """The commits that a run began with, but where another is given now."""
    there = {key: hub.revision for key, hub in _hubs(begun).items() if is_commit(hub.revision)}
    kept: dict[str, str | None] = {}
    for key, hub in _hubs(data).items():
        if key in there and not is_commit(hub.revision):
            kept[key] = there[key]
            if hub.revision:
                log.info("%s.hub.revision=%s: the run goes on with %s", key, hub.revision, there[key])
    return kept


def _hubs(data: DataConfig) -> dict[str, HubConfig]:
    """Where sets are named, and what is given there."""
    return {"data": data.hub} | {_key(name): corpus.hub for name, corpus in data.train.corpora.items()}


def _key(corpus: str) -> str:
    return f"data.train.corpora.{corpus}"
