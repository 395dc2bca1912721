"""The answers to `init`: clouds, store and spending limit, each parsed from text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config import SETTINGS
from orchestrator.config.values import BadSetting
from orchestrator.errors import SiteError, UsageError, did_you_mean
from orchestrator.nodes.access.scope import scope_of
from providers.registry import provider_names

LOCAL = "local"
CLOUDS = ("aws", "gcp", "azure")
BUDGET_USD_PER_HOUR = "5"
_SIGNS: Mapping[str, tuple[str, ...]] = {
    "aws": ("$AWS_ACCESS_KEY_ID", "$AWS_PROFILE", "~/.aws/credentials"),
    "gcp": ("$GOOGLE_APPLICATION_CREDENTIALS", "~/.config/gcloud/application_default_credentials.json"),
    "azure": ("$AZURE_CLIENT_ID", "~/.azure/msal_token_cache.json"),
}
"""Where each cloud's tools look for credentials first."""


@dataclass(frozen=True, slots=True)
class Answers:
    """`clouds` are names of providers; `store` is a bucket or a folder, or None for the state folder. `state_dir` None:
    the default folder."""

    clouds: tuple[str, ...]
    store: str | None
    max_usd_per_hour: float
    state_dir: Path | None = None


def choices() -> tuple[str, ...]:
    """The possible choices: the market on this machine, and the clouds that this version can rent from."""
    return LOCAL, *(name for name in CLOUDS if name in provider_names())


def with_credentials(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The clouds for which this machine seems to have credentials. `doctor` checks whether they work."""
    home = Path(environ.get("HOME", "/nonexistent"))

    def found(sign: str) -> bool:
        return bool(environ.get(sign[1:])) if sign.startswith("$") else (home / sign[2:]).exists()

    return tuple(name for name in choices() if any(map(found, _SIGNS.get(name, ()))))


def read_clouds(text: str) -> tuple[str, ...]:
    """Names separated by commas or spaces. Raises UsageError."""
    names = tuple(dict.fromkeys(text.replace(",", " ").split()))
    known = choices()
    if not names:
        raise UsageError("no cloud was named", hint=f"one or more of {', '.join(known)}")
    for name in names:
        if name not in known:
            near = did_you_mean(name, known)
            raise UsageError(
                f"{name!r:.80} is not a cloud that can be chosen here",
                hint=f"{near} one or more of {', '.join(known)}; machines of your own: docs/owned-machines.md".strip(),
            )
    others = [name for name in names if name != LOCAL]
    if LOCAL in names and others:
        raise UsageError(
            f"{LOCAL} is a simulated market: it cannot be combined with {' and '.join(others)}",
            hint=f"choose only {LOCAL}, or omit it",
        )
    return names


def read_store(text: str, clouds: tuple[str, ...]) -> str | None:
    """A bucket; empty for the state folder, which machines of a cloud cannot reach. Raises UsageError."""
    if not text.strip() and clouds == (LOCAL,):
        return None
    hint = "give a bucket that all machines can reach, such as s3://my-bucket/tradewind, gs://... or az://..."
    if not text.strip():
        raise UsageError(f"machines of {', '.join(clouds)} need a bucket for orders and checkpoints", hint=hint)
    try:
        root = SETTINGS["store_root"].read(text)
    except ValueError as error:
        remedy = error.hint if isinstance(error, BadSetting) else hint
        raise UsageError(f"{text!r:.200} {error}", hint=remedy) from error
    if isinstance(root, Path):
        if clouds == (LOCAL,):
            return str(root)
        raise UsageError(f"machines of {', '.join(clouds)} cannot reach the folder {text!r:.200}", hint=hint)
    if clouds != (LOCAL,):
        try:
            scope_of((str(root),))
        except SiteError as error:
            raise UsageError(str(error), hint=error.hint) from error
    return str(root)


def read_budget(text: str) -> float:
    """US dollars per hour. Raises UsageError."""
    setting = SETTINGS["limits.max_usd_per_hour"]
    try:
        amount = setting.read(text.strip().lstrip("$"))
    except ValueError as error:
        raise UsageError(f"{text!r:.80} is not an amount: it {error}", hint="US dollars per hour, such as 5") from error
    assert isinstance(amount, float)
    return amount
