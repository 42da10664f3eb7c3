"""The cache folder: of users with and without a home folder, and shared by users with other umasks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.config import DataConfig, SplitConfig
from nmt.data.corpora.corpus import open_corpus
from nmt.errors import UserError
from nmt.runtime.files import cache_folder, folder_in_cache, locked
from nmt.runtime.hub import quiet_hub

VARIABLES = ("NMT_CACHE", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "SACREBLEU")
SECOND_USER = """
import os, sys
from pathlib import Path
from nmt.runtime.files import folder_in_cache
os.setgroups([])
os.setresgid(60001, 60001, 60001)
os.setresuid(54322, 54322, 54322)
for root in sys.argv[1:]:
    print(folder_in_cache(Path(root), "ids-1", "done").relative_to(Path(root).parent))
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home folder, and without variables that name another folder."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="^NMT_CACHE: this user has no home folder"):
        cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/nmt")
    monkeypatch.setenv("NMT_CACHE", "/own")
    assert cache_folder() == Path("/own")


@pytest.mark.usefixtures("homeless")
def test_downloads_of_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="^HF_HOME: this user has no home folder"):
        quiet_hub()
    data = DataConfig(source_lang="en", target_lang="de", test=SplitConfig(sacrebleu="wmt14/full"))
    with pytest.raises(UserError, match="^SACREBLEU: this user has no home folder"):
        open_corpus(data.test, data, "data.test")
    monkeypatch.setenv("HF_HUB_CACHE", "/models")
    quiet_hub()


SHARED, NEXT_TO_IT = "prepared/ids-1", "prepared-54322/ids-1"
CACHES = [  # mode of the cache, mode of its root, umask of the first user, whether that one has finished
    (0o1777, 0o755, 0o022, True, SHARED),
    (0o1777, 0o750, 0o027, True, NEXT_TO_IT),
    (0o1777, 0o700, 0o077, True, NEXT_TO_IT),
    (0o1777, 0o1777, 0o077, True, NEXT_TO_IT),
    (0o1777, 0o1777, 0o022, False, NEXT_TO_IT),
    (0o1777, 0o1777, 0o000, False, NEXT_TO_IT),  # in a sticky folder only the owner removes a folder
    (0o777, 0o777, 0o000, False, SHARED),
    (0o755, 0o700, 0o077, True, SHARED),  # the second user can create nothing: an error names this folder
]


@needs_root
def test_the_second_user_of_a_shared_cache(open_folder: Path) -> None:
    roots = [open_folder / f"cache-{number}" / "prepared" for number in range(len(CACHES))]
    for root, (mode, root_mode, umask, finished, _) in zip(roots, CACHES, strict=True):
        folder, files = root / "ids-1", [root / "ids-1.lock", *([root / "ids-1" / "done"] * finished)]
        folder.mkdir(parents=True)
        for file in files:
            file.touch()
            file.chmod(0o666 & ~umask)
        for path in (root, folder, *files):
            os.chown(path, 54321, 60000)
        for path, rights in ((folder, 0o777 & ~umask), (root, root_mode), (root.parent, mode)):
            path.chmod(rights)
    words = [sys.executable, "-c", SECOND_USER, *roots, open_folder / "none" / "prepared"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [*(expected for *_, expected in CACHES), SHARED], done.stderr


def test_the_first_user_of_a_cache(tmp_path: Path) -> None:
    assert folder_in_cache(tmp_path / "prepared", "ids-1", "done") == tmp_path / "prepared" / "ids-1"
    (tmp_path / "prepared" / "ids-1.part").mkdir(parents=True)
    assert folder_in_cache(tmp_path / "prepared", "ids-1", "done") == tmp_path / "prepared" / "ids-1"


@needs_root
def test_a_lock_of_another_user_in_a_sticky_folder(open_folder: Path) -> None:
    """Where fs.protected_regular is set, not even root may open such a file with O_CREAT."""
    lock = open_folder / "ids-1.lock"
    lock.touch()
    lock.chmod(0o666)
    os.chown(lock, 54321, 60000)
    with locked(lock, lambda: pytest.fail("nobody else holds the lock")):
        pass
