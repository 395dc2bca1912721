"""Characters that are not seen but act: controls, formats such as bidi marks, unpaired surrogates, which no file can
hold. Text from jobs, machines and clouds may have them; screens, pages and tables show them as escapes."""

from __future__ import annotations

from unicodedata import category

HIDDEN = ("Cc", "Cf", "Zl", "Zp", "Cs")


def visible(text: str, kept: str = "\t") -> str:
    """`text` with hidden characters as escapes (`\\x1b`, `\\u202e`), except those in `kept`."""
    return text if text.isprintable() else "".join(each if each in kept else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    if category(character) not in HIDDEN:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
