"""How a user raises a limit: the control plane reads its configuration only when it starts."""

from __future__ import annotations

RESTART = "tradewind down --keep-jobs, then tradewind up"


def raising(setting: str, to: str = "") -> str:
    """How to raise a setting, such as `projects.vision.budget`, also while a control plane runs. `to` is the new
    amount, if it is known."""
    return f"raise {setting}{f' to {to}' if to else ''} in tradewind.toml ({RESTART})"


def restarting(setting: str) -> str:
    """What to do if a setting was raised already, but not read since."""
    return f"restart the control plane, so that it reads {setting} again ({RESTART})"
