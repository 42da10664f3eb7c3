"""The Hugging Face hub: names of models, their commits, and the errors of its library."""

from nmt.runtime.hub.client import brief, is_commit, is_network_error, quiet_hub
from nmt.runtime.hub.models import (
    HUB,
    hub_files,
    hub_folder,
    is_hub_name,
    is_repository,
    pinned,
    require_repository,
)

__all__ = [
    "HUB",
    "brief",
    "hub_files",
    "hub_folder",
    "is_commit",
    "is_hub_name",
    "is_network_error",
    "is_repository",
    "pinned",
    "quiet_hub",
    "require_repository",
]
