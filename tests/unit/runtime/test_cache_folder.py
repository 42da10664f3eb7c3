"""The cache folder of users with and without a home folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.errors import UserError
from nmt.runtime.files import cache_folder


def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("NMT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(UserError, match="^NMT_CACHE: this user has no home folder"):
        cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/nmt")
    monkeypatch.setenv("NMT_CACHE", "/own")
    assert cache_folder() == Path("/own")
