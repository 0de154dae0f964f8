"""Look for logins to the Hub and W&B where their own tools look, without network access."""

from __future__ import annotations

import configparser
import netrc
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

WANDB = ("api.wandb.ai", "api.forge.coreweave.com", "forge.coreweave.com")
"""Names of W&B's own server; a key for one of them is valid for all."""


def has_hub_token() -> bool:
    """Say whether huggingface_hub would find a token."""
    from huggingface_hub import get_token

    try:
        return get_token() is not None
    except (OSError, ValueError):
        return False


def has_wandb_key() -> bool:
    """Say whether W&B would find a key: in the environment, its settings files, or ``.netrc``.

    ``wandb.sdk.lib.wbauth`` looks in the same places, but importing it starts by importing W&B,
    an extra, and warns of files that it cannot read.
    """
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    settings = _wandb_settings()
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or settings.get("base_url") or "").netloc
    hosts = WANDB if not host or host in WANDB else (host,)
    return bool(settings.get("api_key")) or _is_in_netrc(hosts)


def _wandb_settings() -> dict[str, str]:
    """Return W&B's settings; those in the working directory take precedence over the user's."""
    folder = os.environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb"
    found = dict[str, str]()
    for file in (Path(os.path.expanduser(folder)) / "settings", Path("wandb") / "settings"):
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(file, encoding="utf-8")
            found |= dict(parser["default"])
        except (OSError, KeyError, ValueError, configparser.Error):
            continue
    return found


def _is_in_netrc(hosts: Sequence[str]) -> bool:
    places = [os.environ["NETRC"]] if os.environ.get("NETRC") else ["~/.netrc", "~/_netrc"]
    file = next((f for f in map(os.path.expanduser, places) if os.path.isfile(f)), None)
    if file is None:
        return False
    try:
        logins = netrc.netrc(file).hosts
    except (OSError, ValueError, netrc.NetrcParseError):
        return False
    return any(logins[host][2] for host in hosts if host in logins)
