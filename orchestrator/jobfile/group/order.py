"""Finds cycles in the order of a group's jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence


def cycles(after: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """A shortest cycle through the first job of each strongly connected component, in the order of `after`. Every name
    in the values of `after` must be one of its keys."""
    found: dict[str, list[str]] = {}
    for together in _components(after):
        first = next(name for name in after if name in together) if len(together) > 1 else next(iter(together))
        if circle := _circle(first, together, after):
            found[first] = circle
    return [found[name] for name in after if name in found]


def _circle(first: str, together: set[str], after: Mapping[str, Sequence[str]]) -> list[str]:
    """The shortest cycle through `first` within the jobs `together`; empty if there is none."""
    came: dict[str, str] = {}
    waiting = deque([first])
    while waiting:
        name = waiting.popleft()
        for following in after[name]:
            if following == first:
                way = [name]
                while way[-1] != first:
                    way.append(came[way[-1]])
                return way[::-1]
            if following in together and following not in came:
                came[following] = name
                waiting.append(following)
    return []


def _components(after: Mapping[str, Sequence[str]]) -> list[set[str]]:
    """The strongly connected components (Tarjan 1972), without recursion."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: dict[str, None] = {}
    found: list[set[str]] = []
    for start in after:
        walks = [(start, iter(after[start]))] if start not in number else []
        while walks:
            name, rest = walks[-1]
            if name not in number:
                number[name] = lowest[name] = len(number)
                stack[name] = None
            following = next((each for each in rest if each not in number or each in stack), None)
            if following is not None and following not in number:
                walks.append((following, iter(after[following])))
            elif following is not None:
                lowest[name] = min(lowest[name], number[following])
            else:
                walks.pop()
                if walks:
                    lowest[walks[-1][0]] = min(lowest[walks[-1][0]], lowest[name])
                if lowest[name] == number[name]:
                    found.append(_popped(stack, name))
    return found


def _popped(stack: dict[str, None], until: str) -> set[str]:
    popped: set[str] = set()
    while until not in popped:
        popped.add(stack.popitem()[0])
    return popped
