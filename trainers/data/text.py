"""A text data set available on every machine: the source code of the running Python's standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy
import torch
from torch import Tensor
from torch.utils.data import Dataset

# Newline and the printable ASCII characters; all others are one unknown character (number 0).
_CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))
VOCABULARY = len(_CHARACTERS) + 1


def standard_library_text(most_bytes: int) -> str:
    """The first `most_bytes` of the top-level modules, in the order of their names, in whole lines.

    Identical on all machines with the same Python version.
    """
    parts, left = [], most_bytes
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        if left <= 0:
            break
        part = path.read_text(encoding="utf-8", errors="replace")[:left]
        parts.append(part)
        left -= len(part)
    text = "".join(parts)
    return text[: text.rfind("\n") + 1]


class CharacterWindows(Dataset[tuple[Tensor, Tensor]]):
    """Pairs of `context` characters and the characters that follow each; window i begins at character i * stride."""

    def __init__(self, text: str, context: int, stride: int | None = None) -> None:
        table = numpy.zeros(256, numpy.int64)
        for place, character in enumerate(_CHARACTERS, start=1):
            table[ord(character)] = place
        # Latin-1 has one byte per character; other characters become question marks.
        codes = numpy.frombuffer(text.encode("latin-1", "replace"), numpy.uint8)
        self._tokens = torch.from_numpy(table[codes])
        self._context = context
        self._stride = stride or context

    def __len__(self) -> int:
        return max(0, (len(self._tokens) - self._context - 1) // self._stride + 1)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        begin = index * self._stride
        window = self._tokens[begin : begin + self._context + 1]
        return window[:-1], window[1:]
