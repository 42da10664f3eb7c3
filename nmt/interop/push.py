"""Uploads a folder to the Hugging Face hub (`push=OWNER/NAME`)."""

from __future__ import annotations

from pathlib import Path

from nmt import __version__
from nmt.errors import UserError
from nmt.runtime.hub import brief, is_network_error, quiet_hub, require_repository
from nmt.runtime.model_files import BUNDLE_FILES


def require_token(repository: str) -> None:
    """Requires a valid name and a token, before hours of work; the hub is not asked.

    Raises:
        UserError: the name is not valid, or there is no token.
    """
    from huggingface_hub import get_token

    require_repository(repository, "push")
    if get_token() is None:
        raise UserError(f"push={repository}: no token for the hub. Run hf auth login, or set HF_TOKEN.")


def push(folder: Path, repository: str, message: str, private: bool | None) -> str:
    """Uploads a folder as one commit, and creates the repository `owner/name` if it does not exist.

    Other files of the repository stay there, except files of an earlier model that this one does not have:
    nmt would read them. `message` is the title of the commit, whose address is returned.

    Raises:
        UserError: the hub refuses it or can't be reached. The folder stays where it is.
    """
    from huggingface_hub import HfApi

    quiet_hub()
    api = HfApi(library_name="nmt", library_version=__version__)
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            commit_message=message,
            delete_patterns=list(BUNDLE_FILES),
        )
    except Exception as error:
        reason = _reason(error, repository)
        if reason is None:
            raise
        raise UserError(
            f"push={repository}: {reason} {folder} is complete; to upload it later: "
            f"hf upload {repository} {folder}"
        ) from error
    return str(commit.commit_url)


def _reason(error: Exception, repository: str) -> str | None:
    """Returns the reason of a failed upload and a fix; None for a bug."""
    owner = repository.partition("/")[0]
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return "the hub does not accept the token. Run hf auth login, or set HF_TOKEN."
    if status == 403:
        return f"the token may not write there ({brief(error)}). Use one with write access to {owner}."
    if status == 404:
        return f"the hub has no such owner or repository ({brief(error)}). Check the name."
    if status is None and isinstance(error, ValueError):  # the check of the card's header
        return f"the hub refuses it ({brief(error)})."
    if not is_network_error(error):
        return None
    if status is not None:
        return f"the hub refuses it ({brief(error)})."
    return f"the hub could not be reached ({brief(error)})."
