"""Order: the jobs that each job of a group comes after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def cycle(after: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Jobs that wait for each other in a circle, the first one repeated at the end; () if there are none.

    Every name in the values of `after` is one of its keys.
    """
    done: set[str] = set()
    for start in after:
        path: list[str] = []
        walks = [(start, iter(after[start]))] if start not in done else []
        if walks:
            path.append(start)
        while walks:
            name, rest = walks[-1]
            following = next(rest, None)
            if following is None:
                done.add(name)
                path.pop()
                walks.pop()
            elif following in path:
                return (*path[path.index(following) :], following)
            elif following not in done:
                path.append(following)
                walks.append((following, iter(after[following])))
    return ()
