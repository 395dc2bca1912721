"""Small models for the examples and the demo.

Loads torch on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.models.convnet import ConvNet
    from trainers.models.gpt import GPT
    from trainers.models.lstm import LSTM

__all__ = ["GPT", "LSTM", "ConvNet"]

_LAZY = {"ConvNet": "trainers.models.convnet", "GPT": "trainers.models.gpt", "LSTM": "trainers.models.lstm"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
