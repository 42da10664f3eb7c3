"""The folder of compiled kernels for users without a home folder that Triton can use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nmt.model.gpu.kernel import choose_kernel_cache


@pytest.mark.parametrize("home", ["/proc", "~"])  # read-only; not known
def test_the_cache_of_a_user_without_a_home(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRITON_HOME", "NMT_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", "")  # restored after the test
    monkeypatch.setattr(os.path, "expanduser", lambda path: home)
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    def chosen() -> str | None:
        os.environ.pop("TRITON_CACHE_DIR", None)
        choose_kernel_cache.__wrapped__()
        return os.environ.get("TRITON_CACHE_DIR")

    temporary = Path(chosen() or "")
    assert temporary.name == "triton" and temporary.parent.is_dir()
    monkeypatch.setenv("NMT_CACHE", str(tmp_path))
    assert chosen() == str(tmp_path / "triton")
    monkeypatch.setenv("TRITON_HOME", "/anywhere")
    assert chosen() is None


def test_a_usable_home_is_left_to_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", "")
    del os.environ["TRITON_CACHE_DIR"]
    choose_kernel_cache.__wrapped__()
    assert "TRITON_CACHE_DIR" not in os.environ
