"""Explains why a text is not YAML: where the mistake begins, and what to write instead."""

from __future__ import annotations

import re

import yaml

from orchestrator.jobfile.source.source_map import Mark, YamlSyntaxError

_CLOSING = {"[": "]", "{": "}"}


def syntax_error(text: str, error: yaml.MarkedYAMLError) -> YamlSyntaxError:
    """The parser's error in terms of job files. Its place is where the mistake begins, not where parsing failed."""
    at = _mark(error.problem_mark or error.context_mark)
    begins = _mark(error.context_mark or error.problem_mark)
    context, problem = error.context or "", error.problem or ""
    lines = text.splitlines()
    line = lines[at.line - 1] if at.line <= len(lines) else ""
    indent = re.match(r"[ \t]*", line)
    if (indent and "\t" in indent[0]) or "'\\t'" in problem:
        column = indent[0].find("\t") + 1 if indent and "\t" in indent[0] else at.column
        return _error("a tab cannot indent YAML", "use spaces", Mark(at.line, column))
    if "quoted scalar" in context and "end of stream" in problem:
        quote = '"' if "double" in context else lines[begins.line - 1][begins.column - 1]
        return _error("this quote is never closed", f"add {quote} at the end of the value", begins)
    if "flow" in context and line[at.column - 2 : at.column] == "${":
        return _error('a value with "${...}" between brackets needs quotes', "put the value in quotes", at)
    if "flow" in context and problem.startswith("expected ',' or"):
        bracket = "[" if "sequence" in context else "{"
        return _error(f'this "{bracket}" is never closed', f'add "{_CLOSING[bracket]}"', begins)
    if (quoted := _quote_over_lines(text, at)) is not None:
        return _error("this quote may never be closed", "close it on its own line", quoted)
    if problem == "expected <block end>, but found '<scalar>'":
        return _error(
            "text after the end of a quoted value", "double a quote inside quotes, or use the other kind of quote", at
        )
    if problem == "mapping values are not allowed here":
        return _nested_value(lines, line, at)
    if problem.startswith("could not find expected ':'"):
        return _error("this line has no value", 'write "field: value"', begins)
    if "alias" in context or "undefined alias" in problem:
        at = begins if "alias" in context else at
        return _error("a value that begins with * is a YAML alias", "put the value in quotes", at)
    if found := re.fullmatch(r"found character '(.)' that cannot start any token", problem):
        return _error(f'a value cannot begin with "{found[1]}"', "put the value in quotes", at)
    if problem.startswith("expected <block end>"):
        return _error("the indentation matches no line above", "indent all fields of a section by the same amount", at)
    if "stream end" in problem and (opened := _open_bracket(text)) is not None:
        bracket = lines[opened.line - 1][opened.column - 1]
        return _error(f'this "{bracket}" is never closed', f'add "{_CLOSING[bracket]}"', opened)
    if "expected the node content" in problem:
        return _error("this bracket was never opened", "delete it, or add the opening bracket", at)
    if "another document" in problem:
        return _error("only one document is allowed", 'delete "---" and everything after it', at)
    return YamlSyntaxError(": ".join(part for part in (context, problem) if part), at)


def _nested_value(lines: list[str], line: str, at: Mark) -> YamlSyntaxError:
    """The error for a misplaced colon: a second one on its line, or one on a line that is indented too far."""
    before = line[: at.column - 1]
    if re.match(r"\s*[\w.-]+:\s", before):
        return _error('a second ":" on one line', "put the value in quotes, or begin a new line", at)
    previous = next((each for each in reversed(lines[: at.line - 1]) if each.strip()), "")
    if previous and len(before) - len(before.lstrip()) > len(previous) - len(previous.lstrip()):
        hint = "indent it like the line above, or end that line with a colon"
        return _error("this line is indented more than the one above", hint, Mark(at.line, _indent(line)))
    at = Mark(max(1, at.line - 1), _indent(previous))
    return _error("this line has no value", 'write "field: value"', at)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) + 1


def _quote_over_lines(text: str, until: Mark) -> Mark | None:
    """Where the last quoted value before `until` begins, if it spans a line end: it was probably not closed there."""
    found: Mark | None = None
    try:
        for token in yaml.scan(text, Loader=yaml.BaseLoader):
            if token.start_mark.line + 1 > until.line:
                break
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                over = token.end_mark.line > token.start_mark.line
                found = _mark(token.start_mark) if over else None
    except yaml.YAMLError:
        pass
    return found


def _open_bracket(text: str) -> Mark | None:
    """The position of the last bracket that is never closed."""
    opened: list[Mark] = []
    try:
        for token in yaml.scan(text, Loader=yaml.BaseLoader):
            if isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken):
                opened.append(_mark(token.start_mark))
            elif opened and isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken):
                opened.pop()
    except yaml.YAMLError:
        pass
    return opened[-1] if opened else None


def _error(message: str, hint: str, mark: Mark) -> YamlSyntaxError:
    return YamlSyntaxError(message, mark, hint)


def _mark(mark: yaml.Mark | None) -> Mark:
    return Mark(mark.line + 1, mark.column + 1) if mark is not None else Mark(1, 1)
