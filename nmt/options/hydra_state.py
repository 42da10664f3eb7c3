"""Saves and restores the global state of Hydra and OmegaConf, which a calling program may use too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hydra import initialize_config_dir
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.version import VersionBase
from omegaconf.basecontainer import BaseContainer

from nmt.options.arguments import configs_folder

_LOCK = threading.RLock()


@contextmanager
def isolated_hydra(config_name: str, schema: type[Any]) -> Iterator[None]:
    """Sets Hydra up to compose from `configs/`, and restores its state afterwards. Only one thread at a time.

    Args:
        config_name: the command's YAML file.
        schema: the dataclass of the command's options.
    """
    with _LOCK, _restored():
        store = ConfigStore.instance()
        store.repo = dict(store.repo)
        store.store(name=f"{config_name}_schema", node=schema)
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(configs_folder()), version_base="1.3"):
            yield


@contextmanager
def _restored() -> Iterator[None]:
    store, repo = ConfigStore.instance(), ConfigStore.instance().repo
    instance, hydra = GlobalHydra.instance(), GlobalHydra.instance().hydra
    version, base = VersionBase.instance(), VersionBase.instance().version_base
    resolvers = dict(BaseContainer._resolvers)
    plugins = Plugins.instance()
    kinds = {kind: list(found) for kind, found in plugins.plugin_type_to_subclass_list.items()}
    classes, sources = dict(plugins.class_name_to_class), dict(SourcesRegistry.instance().types)
    try:
        yield
    finally:
        store.repo = repo
        instance.hydra = hydra
        GlobalHydra.set_instance(instance)
        version.version_base = base
        _put_back(BaseContainer._resolvers, resolvers)
        for kind, found in kinds.items():
            plugins.plugin_type_to_subclass_list[kind][:] = found
        _put_back(plugins.class_name_to_class, classes)
        _put_back(SourcesRegistry.instance().types, sources)


def _put_back(current: dict[Any, Any], before: dict[Any, Any]) -> None:
    current.clear()
    current.update(before)
