"""Models that a user names: a model folder, a run folder, a checkpoint, or `hf://owner/name` on the hub.

The commit of a name on the hub, `hf://owner/name` or `hf://owner/name@revision`, is determined once, at the
start of a command. From then on the name is `hf://owner/name@COMMIT`, which always means the same files, and
which needs no network once they are cached. The library of the hub is imported when it is needed.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from nmt import __version__
from nmt.errors import UserError
from nmt.runtime.checksums import read_sections
from nmt.runtime.files import expanded, home_folder
from nmt.runtime.guest import guest
from nmt.runtime.model_files import (
    BUNDLE_FILES,
    CONFIG,
    EXPORT_REPORT,
    WEIGHTS,
    abbreviated,
    checkpoint_name,
    checkpoint_names,
    config_file,
    enclosing_run,
    update_of,
)
from nmt.runtime.os_errors import read_errors
from nmt.runtime.streams import log

HUB = "hf://"
"""The beginning of the name of a model on the hub."""

_PART = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9_])?"
_NAME = re.compile(rf"({_PART}/{_PART})(?:@(\S+))?", re.ASCII)
_FORM = f"Give {HUB}OWNER/NAME or {HUB}OWNER/NAME@REVISION."
_COMMIT = re.compile("[0-9a-f]{40}")


def find_model_folder(path: str | Path, key: str = "model_dir") -> Path:
    """Returns the folder that holds the weights of a model; `key` is the option that named it, for messages.

    `config_file` and `pieces_folder` return the paths of its other parts.

    Raises:
        UserError: the path is not a model folder, a run folder that holds one, a checkpoint, or
            `hf://owner/name`.
    """
    named = expanded(path)
    with read_errors(named):
        folder = model_folder_or_none(path, key)
        if folder is None:
            raise UserError(f"{key}={path}: {_missing_model_reason(named, str(path), key)}")
        return folder


def model_folder_or_none(path: str | Path, key: str = "model_dir") -> Path | None:
    """Does the same as `find_model_folder`, but returns None if the path is none of these.

    Raises:
        OSError: the look-up fails.
        UserError: as for `model_folders`.
    """
    for folder in model_folders(path, key):
        if (folder / WEIGHTS).is_file() and config_file(folder).is_file():
            return folder
    return None


def _missing_model_reason(named: Path, path: str, key: str) -> str:
    inside = named if named.name == "checkpoints" else named.parent
    names = checkpoint_names(inside)
    if update_of(named.name) is not None and inside.is_dir() and not named.exists():
        return f"there is no such checkpoint. {inside} has {abbreviated(names) or 'none'}."
    if not named.exists():
        several = key == "model_dir" and "," in path
        hint = f'. Write several as a list: "{key}=[{path}]".' if several else ""
        return f"there is no such folder (looked for {named.absolute()}){hint}"
    if inside == named and names:
        return f"holds checkpoints. Name one of them: {key}={Path(path) / names[-1]}"
    if enclosing_run(named) is not None:
        return f"this checkpoint is not in its run: there is no {config_file(named)}. Move it back there."
    if (named / EXPORT_REPORT).is_file():
        return _export_reason(named)
    if (named / "checkpoints").is_dir():
        names = checkpoint_names(named / "checkpoints")
        last = f", or name a checkpoint: {key}={Path(path) / 'checkpoints' / names[-1]}" if names else ""
        return (
            f"its training has not ended, so it has no model yet. "
            f"Resume it with the same nmt-train command{last}"
        )
    return f"not a model folder: neither it nor its folder model/ has {CONFIG} and {WEIGHTS}"


def _export_reason(folder: Path) -> str:
    fix = "Give the model that it was made from"
    try:
        format = read_sections(folder / EXPORT_REPORT).get("format")
    except UserError:
        format = None
    if format == "ctranslate2":
        return (
            f"is an export for CTranslate2. {fix}. nmt-translate and nmt-serve also read the export, with "
            "backend=ctranslate2."
        )
    return f"is an export for another program. {fix}."


def model_folders(path: str | Path, key: str = "model_dir") -> list[Path]:
    """Returns the folders in which to look for a model that a user has named, the likeliest first.

    A model on the hub is downloaded, unless it is in the cache. The number of a checkpoint may lack leading
    zeros.

    Raises:
        UserError: there is no such model on the hub, or it is neither on the network nor in the cache.
    """
    if is_hub_name(path):
        return [hub_folder(str(path), key)]
    named = expanded(path)
    update = update_of(named.name)
    padded = [] if update is None else [named.with_name(checkpoint_name(update))]
    return [named / "model", named, *padded]


@dataclass(frozen=True)
class _Name:
    """The parts of a name, which the option `key` has given; without a revision it is the branch `main`."""

    text: str
    key: str
    repository: str
    revision: str | None

    def refuse(self, reason: str) -> NoReturn:
        raise UserError(f"{self.key}={self.text}: {reason}")


def is_hub_name(path: str | Path) -> bool:
    """Whether a path names a model on the hub."""
    return str(path).startswith(HUB)


def require_repository(name: str, key: str) -> None:
    """Requires the form `owner/name`, which the option `key` has given.

    Raises:
        UserError: the name has another form.
    """
    match = _NAME.fullmatch(name)
    if match is None or match[2] is not None or ".." in name or "--" in name or len(name) > 96:
        raise UserError(f"{key}={name}: not the name of a repository on the hub. Give OWNER/NAME.")


def pinned(path: str, key: str = "model_dir") -> str:
    """Returns `hf://owner/name@COMMIT` for a model on the hub, and other paths unchanged.

    Without a network the commit is the one that the cache has for the revision.

    Raises:
        UserError: the name is not valid, there is no such repository or revision, or it is neither on the
            network nor in the cache. The message begins with `key`, the option that gave the name.
    """
    if not is_hub_name(path):
        return path
    name = _parsed(path, key)
    if is_commit(name.revision):
        return path
    return f"{HUB}{name.repository}@{_commit_of(name)}"


def hub_folder(path: str, key: str = "model_dir") -> Path:
    """Returns the folder in the cache of `huggingface_hub` that has the files of a model on the hub.

    Downloads those that are missing, and no other files of the repository.

    Raises:
        UserError: as for `pinned`; the repository does not have a model of nmt, or the download fails.
    """
    name = _parsed(pinned(path, key), key)
    # First the small file: another repository may have gigabytes of weights under the same name.
    folder = _downloaded(name, [CONFIG])
    if not (folder / CONFIG).is_file():
        name.refuse(f"not a model of nmt: the repository has no {CONFIG}.")
    folder = _downloaded(name, list(BUNDLE_FILES))
    if not (folder / WEIGHTS).is_file():
        name.refuse(f"not a model of nmt: the repository has no {WEIGHTS}.")
    return folder


def hub_files(path: str, key: str, files: Sequence[str], weights: Sequence[str]) -> Path:
    """Returns a folder in the cache that has files of a repository on the hub, of any kind of model.

    Args:
        path: a name with its commit; see `pinned`.
        key: the option that gave it, for the messages.
        files: names of files. Those that the repository lacks are left out.
        weights: names of large files, of which only the first that the repository has is downloaded.

    Raises:
        UserError: as for `pinned`; or the download fails.
    """
    name = _parsed(path, key)
    folder = _downloaded(name, list(files))
    for large in weights:
        folder = _downloaded(name, [large])
        if (folder / large).is_file():
            break
    return folder


def is_repository(name: str) -> bool:
    """Whether a text has the form `owner/name`."""
    return re.fullmatch(f"{_PART}/{_PART}", name, re.ASCII) is not None


def _parsed(path: str, key: str) -> _Name:
    match = _NAME.fullmatch(path.removeprefix(HUB))
    if match is None or ".." in match[1] or "--" in match[1]:
        raise UserError(f"{key}={path}: not the name of a model on the hub. {_FORM}")
    return _Name(path, key, match[1], match[2])


def _commit_of(name: _Name) -> str:
    from huggingface_hub import HfApi

    quiet_hub()
    try:
        require_commit(HfApi().model_info(name.repository, revision=name.revision, timeout=20).sha)
    except Exception as error:
        _refuse_unless_network(name, error)
        commit = _cached_commit(name, error)
        log.warning(
            "%s=%s: %s. Using commit %s from the cache.", name.key, name.text, unreachable(error), commit
        )
        return commit
    # The download also notes the commit of the revision in the cache, for a time without a network.
    return _downloaded(name, [CONFIG]).name


def _cached_commit(name: _Name, reason: Exception) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            name.repository,
            revision=name.revision,
            allow_patterns=[CONFIG],
            local_files_only=True,
        )
    except (LocalEntryNotFoundError, ValueError):
        _refuse_unreachable(name, reason)
    return Path(folder).name


def _downloaded(name: _Name, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    quiet_hub()
    try:
        folder = snapshot_download(
            name.repository,
            revision=name.revision,
            allow_patterns=patterns,
            library_name="nmt",
            library_version=__version__,
        )
    except Exception as error:
        _refuse_unless_network(name, error)
        _refuse_unreachable(name, error)
    return Path(folder)


def _refuse_unless_network(name: _Name, error: Exception) -> None:
    """Raises a UserError for an answer of the hub; returns if there was none."""
    from huggingface_hub import errors

    # In this order: the earlier classes are special cases of the later ones.
    if isinstance(error, errors.GatedRepoError):
        name.refuse(
            f"its owner must grant you access. Ask for it at https://huggingface.co/{name.repository}, then "
            "run hf auth login, or set HF_TOKEN."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        name.refuse(
            f"there is no model {name.repository} on the hub, or you may not read it. For a private one, run "
            "hf auth login, or set HF_TOKEN."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        name.refuse(f"{name.repository} has no revision {name.revision or 'main'}.")
    if isinstance(error, errors.HFValidationError):
        name.refuse(f"not the name of a model on the hub ({brief(error)}). {_FORM}")
    if isinstance(error, errors.LocalEntryNotFoundError):
        return
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        name.refuse(f"the hub refuses the token ({brief(error)}). Run hf auth login, or set HF_TOKEN.")
    if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError | TimeoutError):
        name.refuse(f"could not be written to the cache: {brief(error)}. Set HF_HOME to another folder.")
    if not is_unreachable(error):
        raise error


def _refuse_unreachable(name: _Name, error: Exception) -> NoReturn:
    name.refuse(
        f"{unreachable(error)}, and the cache does not have all files of this model. Connect to the network "
        "once, or give a local folder."
    )


def is_commit(revision: str | None) -> bool:
    """Whether a revision is a commit, which never changes."""
    return _COMMIT.fullmatch(revision or "") is not None


def quiet_hub() -> None:
    """Disables the warnings of the library, and its progress bars unless standard error is a terminal.

    In a call from another program, its log and bars are not changed.

    Raises:
        UserError: there is no folder for its downloads.
    """
    if not any(os.environ.get(name) for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME")):
        home_folder("HF_HOME")
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if guest() is not None:
        return
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    if not sys.stderr.isatty():
        disable_progress_bars()


def is_network_error(error: BaseException) -> bool:
    """Whether an error is a network error. Its class depends on the version of the library."""
    return isinstance(error, OSError) or type(error).__module__.split(".")[0].startswith(("http", "requests"))


def is_unreachable(error: BaseException) -> bool:
    """Whether an error is a network error, or another server than the hub has answered."""
    return is_network_error(error) or _is_foreign_answer(error)


def _is_foreign_answer(error: BaseException) -> bool:
    """Whether the library has failed on an answer that is not the hub's, such as the login page of a network.

    The library does not check answers: its code raises errors of Python.
    """
    return isinstance(error, TypeError | ValueError | LookupError | AttributeError) and any(
        str(frame.f_globals.get("__name__")).startswith("huggingface_hub")
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def unreachable(error: BaseException) -> str:
    """Returns a network error or a foreign answer as a reason."""
    if _is_foreign_answer(error):
        return f"the answer is not the hub's ({type(error).__name__}: {brief(error)})"
    return f"the hub could not be reached ({brief(error.__cause__ or error)})"


def require_commit(sha: object) -> str:
    """Returns the commit of an answer, which becomes the name of a folder in the cache.

    Raises:
        ConnectionError: it is not a commit: another server than the hub has answered.
    """
    if not isinstance(sha, str) or not is_commit(sha):
        raise ConnectionError(f"its answer has the commit {sha!r:.50}")
    return sha


def brief(error: BaseException) -> str:
    """Returns the message of another library's error in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
