"""Shell commands of a task file -> the one Python program that they start, and their other effects. Runs nothing.

It understands only commands that mean the same without a shell. At anything else (loops, conditions, substitutions) it
stops and reports the line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

_OPERATORS = ";&|<>()"
_REDIRECT = re.compile(r"(?:(?<=\s)|^)[12&]?>>?\s*(?:&[12]|(/dev/\w+)|[^\s;|&<>]+)")
_TO_FILE = "\ue080"  # a word that stands for a redirection to a file
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_SYNTAX = frozenset(";&|<>()#$*?{}~`")
_SHIELD = 0xE000  # + a character that has no special meaning because it is quoted; private range of Unicode
_ONLY_SAYS = re.compile(r"""(?:echo|printf)(?:\s+(?:'[^']*'|"[^"]*"|[^\s'"`;&|<>()]+))*""")
_EXPANDED = re.compile(r"^~|[*?]|\{[^}]*(?:,|\.\.)[^}]*\}")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
_PYTHON = re.compile(r"python(?:[23](?:\.\d+)?)?")
_KEYWORDS = frozenset(
    {
        *("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "function"),
        *("select", "{", "}", "[[", "[", "eval", "trap"),
    }
)
_HARMLESS = frozenset(
    {
        *("echo", "printf", "ls", "pwd", "date", "set", "true", ":", "sleep", "nvidia-smi", "rocm-smi", "env"),
        *("printenv", "whoami", "hostname", "df", "free"),
    }
)
_PREPARES = frozenset(
    {
        *("pip", "pip3", "uv", "conda", "mamba", "micromamba", "poetry", "pipenv", "apt", "apt-get", "sudo"),
        *("source", ".", "git", "mkdir", "wget", "curl", "cp", "mv", "ln", "rm", "tar", "unzip", "rsync", "chmod"),
        *("touch", "module", "ulimit", "wandb", "hf", "huggingface-cli", "aws", "gsutil", "gcloud", "az"),
    }
)
_CHANGE_THE_SHELL = frozenset({"source", ".", "module", "ulimit", "conda", "mamba", "micromamba"})
_WRAPPERS = frozenset({"exec", "time", "nohup"})
_LOG_READERS = frozenset({"tee"})
_PYTHON_OPTIONS_WITH_VALUE = frozenset({"-X", "-W"})
_LAUNCHER_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_LAUNCHER_FLAGS = frozenset(
    {"--standalone", "--no-python", "--no_python", "--run-path", "--run_path", "--use-env", "--use_env"}
)
_OTHER_LAUNCHERS = {"accelerate": "launch", "deepspeed": ""}
_EACH_GPU = frozenset({"gpu", "auto"})


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the commands, with its 1-based number in the file."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program that a line starts: a file, or a module if `is_module`. The line starts `processes` of it on
    each of `nodes` machines (None: not stated). `torchrun`: it is started by torchrun. `unknown` describes the parts
    that only a shell on the machine can evaluate."""

    line: Line
    target: str
    is_module: bool
    arguments: tuple[str, ...]
    processes: int | None = 1
    nodes: int | None = 1
    torchrun: bool = False
    unknown: str = ""
    folder: str = "."


@dataclass(slots=True)
class Commands:
    """The effects of a list of commands. `writes_file`: lines that only write a file. `not_read`: the first line that
    is not a plain command; if there is one, nothing is certain."""

    programs: list[Program] = field(default_factory=list)
    prepares: list[tuple[Line, str, str]] = field(default_factory=list)  # the command, "" if unclear; its folder
    others: list[tuple[Line, str]] = field(default_factory=list)
    variables: list[tuple[Line, str, str]] = field(default_factory=list)
    substituted: list[tuple[Line, str]] = field(default_factory=list)
    logs_to_file: list[Line] = field(default_factory=list)
    writes_file: list[Line] = field(default_factory=list)
    not_read: Line | None = None


class _NotPlainError(Exception):
    """The line needs a shell."""


def read_commands(lines: Iterable[Line], variables: Mapping[str, str], gpus: int | None) -> Commands:
    """The effects of `lines` with these `variables`, on a machine with `gpus` GPUs (None: unknown)."""
    found = Commands()
    known = dict(variables)
    folder = "."
    for line in _joined(lines):
        try:
            for words in _simple_commands(line, found):
                folder = _read(line, words, folder, known, gpus, found)
        except (_NotPlainError, ValueError):  # ValueError: a quote that is not closed on its line
            found.not_read = line
            break
    return found


def _joined(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines without comments and blank lines. A line that ends in a backslash is joined with the next one."""
    begun: Line | None = None
    for line in lines:
        text = line.text.strip()
        if begun is None and (not text or text.startswith("#")):
            continue
        begun = Line(line.number, text) if begun is None else replace(begun, text=f"{begun.text} {text}")
        if begun.text.endswith("\\"):
            begun = replace(begun, text=begun.text[:-1].rstrip())
        else:
            yield begun
            begun = None
    if begun is not None and begun.text:
        yield begun


def _simple_commands(line: Line, found: Commands) -> Iterator[list[str]]:
    """The commands of one line, as words. Raises _NotPlainError, ValueError."""
    text = line.text
    if _ONLY_SAYS.fullmatch(text):
        return
    text = _shielded(text)
    if "`" in text or "$(" in text or "<<" in text:
        raise _NotPlainError
    text = _REDIRECT.sub(lambda match: "" if match[1] or "&" in match[0][1:] else f" {_TO_FILE} ", text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    piped = False
    for word in [*lexer, ";"]:
        if word.startswith("#") and not piped:
            break
        if not word or not set(word) <= set(_OPERATORS):
            words.append(word)
            continue
        if piped and (not words or words[0] not in _LOG_READERS):
            raise _NotPlainError
        if words and not piped:
            yield words
        words, piped = [], word == "|"
        if piped and line not in found.logs_to_file:
            found.logs_to_file.append(line)
        if word not in (";", "&&", "|"):
            raise _NotPlainError
    if words and not piped:
        yield words


def _shielded(text: str) -> str:
    """`text` with quoted characters replaced, so that the rules for shell syntax do not apply to them.

    Raises _NotPlainError for a substitution within double quotes, and for text that already has replacement characters.
    """
    shielded: list[str] = []
    quote, escaped = "", False
    for index, char in enumerate(text):
        if _SHIELD <= ord(char) <= ord(_TO_FILE):
            raise _NotPlainError
        literal = quote == "'" or (quote == '"' and (char not in "$`" or escaped))
        if quote == '"' and not escaped and (char == "`" or text[index : index + 2] == "$("):
            raise _NotPlainError
        shielded.append(chr(_SHIELD + ord(char)) if literal and char in _SYNTAX else char)
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
    return "".join(shielded)


def _unshielded(text: str) -> str:
    return "".join(chr(ord(char) - _SHIELD) if _SHIELD <= ord(char) <= _SHIELD + 0x7F else char for char in text)


def _read(line: Line, words: list[str], folder: str, known: dict[str, str], gpus: int | None, found: Commands) -> str:
    """Process one command. Returns the folder in which the next command runs. Raises _NotPlainError."""
    to_file = _TO_FILE in words
    words = [word for word in words if word != _TO_FILE]
    if words[:1] == ["export"]:
        words = words[1:]
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        value, unknown = _resolved(match[2], known, line, found)
        if unknown:
            found.others.append((line, _only_known_later(unknown)))
        else:
            known[match[1]] = value
            found.variables.append((line, match[1], value))
        words = words[1:]
    while words and words[0] in _WRAPPERS:
        words = words[1:]
    if not words:
        if to_file:
            found.writes_file.append(line)
        return folder
    if words[0] in _KEYWORDS:
        raise _NotPlainError
    if words[0] == "cd" and len(words) == 2:
        to, unknown = _resolved(words[1], known, line, found)
        if unknown or to == "-":
            raise _NotPlainError
        return to if to.startswith(("/", "~")) else f"{folder}/{to}"
    program = _program(line, words, known, gpus, found)
    if program is not None:
        found.programs.append(replace(program, folder=folder))
        if to_file and line not in found.logs_to_file:
            found.logs_to_file.append(line)
    elif words[0] in _PREPARES or (_PYTHON.fullmatch(words[0]) and words[1:3] == ["-m", "pip"]):
        found.prepares.append((line, "" if to_file else _alone(words), folder))
    elif words[0] not in _HARMLESS and words[1:] not in (["--version"], ["-V"]):
        found.others.append((line, "it starts no Python program"))
    elif to_file:
        found.writes_file.append(line)
    return folder


def _alone(words: list[str]) -> str:
    """A command that prepares the machine, as text; empty if its meaning depends on the surrounding shell."""
    if words[0] in _CHANGE_THE_SHELL or any("$" in word or _EXPANDED.search(word) for word in words):
        return ""
    return shlex.join(map(_unshielded, words))


def _program(
    line: Line, words: list[str], known: Mapping[str, str], gpus: int | None, found: Commands
) -> Program | None:
    """The Python program that a command starts; None if it starts none."""
    words = _without_runner(words)
    if not words:
        return None
    name = words[0].rsplit("/", 1)[-1]
    if name == "torchrun":
        return _launched(line, words[1:], known, gpus, found)
    if words[0] in _OTHER_LAUNCHERS and (not _OTHER_LAUNCHERS[words[0]] or words[1:2] == [_OTHER_LAUNCHERS[words[0]]]):
        target = next((word for word in words[1:] if word.endswith(".py")), None)
        return None if target is None else Program(line, target, False, (), None)
    if name.endswith(".py"):
        return _plain(line, words[0], False, words[1:], known, found)
    if not _PYTHON.fullmatch(name):
        return None
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
        rest = rest[2 if rest[0] in _PYTHON_OPTIONS_WITH_VALUE else 1 :]
    if rest[:1] == ["-m"] and len(rest) > 1:
        if rest[1] in _LAUNCHER_MODULES:
            return _launched(line, rest[2:], known, gpus, found)
        return None if rest[1] == "pip" else _plain(line, rest[1], True, rest[2:], known, found)
    if not rest or rest[0].startswith("-"):
        return None
    return _plain(line, rest[0], False, rest[1:], known, found)


def _without_runner(words: list[str]) -> list[str]:
    """The words without `uv run`, `poetry run` and so on, which choose the environment of the program."""
    if len(words) > 2 and words[0] in ("uv", "poetry", "pipenv", "pdm") and words[1] == "run":
        return words[2:] if not words[2].startswith("-") else words
    return words


def _plain(
    line: Line, target: str, is_module: bool, arguments: list[str], known: Mapping[str, str], found: Commands
) -> Program:
    resolved = [_resolved(word, known, line, found) for word in (target, *arguments)]
    unknown = tuple(dict.fromkeys(name for _, names in resolved for name in names))
    texts = [text for text, _ in resolved]
    unknown += tuple(word for word in (target, *arguments) if _EXPANDED.search(word) and "$" not in word)
    return Program(line, texts[0], is_module, tuple(texts[1:]), unknown=_only_known_later(unknown) if unknown else "")


def _launched(
    line: Line, words: list[str], known: Mapping[str, str], gpus: int | None, found: Commands
) -> Program | None:
    """The program of torchrun, with its number of processes per machine and of machines (by default 1)."""
    counts: dict[str, int | None] = {"nproc_per_node": 1, "nnodes": 1}
    is_module = False
    while words and words[0].startswith("-"):
        option, equals, value = words[0].partition("=")
        words = words[1:]
        if option in ("-m", "--module"):
            is_module = True
            continue
        if option in _LAUNCHER_FLAGS:
            continue
        if not equals:
            value, words = (words[0], words[1:]) if words else ("", words)
        name = option.lstrip("-").replace("-", "_")
        if name not in counts:
            continue
        text, unknown = _resolved(value, known, line, found)
        number = gpus if name == "nproc_per_node" and text in _EACH_GPU else int(text) if text.isdecimal() else None
        counts[name] = None if unknown else number
    if not words:
        return None
    program = _plain(line, words[0], is_module, words[1:], known, found)
    return replace(program, processes=counts["nproc_per_node"], nodes=counts["nnodes"], torchrun=True)


def _only_known_later(names: Iterable[str]) -> str:
    """Why a line with these variables and patterns cannot be converted."""
    return f"the value of {', '.join(names)} is known only at run time"


def _resolved(text: str, known: Mapping[str, str], line: Line, found: Commands) -> tuple[str, tuple[str, ...]]:
    """`text` with the values of its variables, and the names of variables that have no value here."""
    unknown: list[str] = []

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in known or known[name] != _unshielded(known[name]):
            unknown.append(f"${name}")
            return match[0]
        if (line, name) not in found.substituted:
            found.substituted.append((line, name))
        return known[name]

    result = _VARIABLE.sub(value, text)
    if not unknown and "$" in _VARIABLE.sub("", text):
        unknown.append("$...")
    return _unshielded(result), tuple(unknown)
