"""Misspelt clouds and regions of `where`.

An unknown name may be correct, such as a provider of a price feed or a new region. So only names that look like a known
one are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from orchestrator.errors import one_edit_apart

_OTHER_NAMES = {
    "amazon": "aws",
    "ec2": "aws",
    "google": "gcp",
    "gce": "gcp",
    "microsoft": "azure",
    "oracle": "oci",
    "datacrunch": "verda",
    "lambdalabs": "lambda",
}
_WILD = "*?["
_WORD = re.compile(r"[a-z]{3,}")


def cloud_meant(name: str) -> str:
    """The known cloud that `name` misspells; empty for a known cloud, a pattern, or a name unlike any cloud."""
    clouds, _ = _known()
    if name in clouds or any(char in name for char in _WILD):
        return ""
    plain = _plain(name)
    meant = _OTHER_NAMES.get(plain) or next((each for each in clouds if _plain(each) == plain), "")
    return meant or next((each for each in sorted(clouds) if one_edit_apart(plain, each)), "")


def known_cloud(name: str) -> bool:
    """Whether the catalogue or an installed provider has the cloud; a pattern counts as known."""
    return name in _known()[0] or any(char in name for char in _WILD)


def region_meant(name: str) -> str:
    """The region that `name` misspells, or whose zone it is; empty if `name` may be a region."""
    _, regions = _known()
    if name in regions or any(char in name for char in _WILD):
        return ""
    plain = _plain(name)
    if same := [each for each in regions if _plain(each) == plain]:  # us-east-1 and us-east1 are regions of two clouds
        return min(same, key=lambda each: (abs(len(each) - len(name)), each))
    if (zone := re.fullmatch(r"(.*\d)-?[a-f]", name)) and zone[1] in regions:
        return zone[1]
    return _respelt(name, regions)


def _respelt(name: str, regions: Collection[str]) -> str:
    """`eu-wst-1` -> `eu-west-1`, by the word that no region has. An unknown number may belong to a new region."""
    words = {word for region in regions for word in _WORD.findall(region)}
    for found in _WORD.finditer(name):
        if found[0] not in words:
            near: Sequence[str] = sorted(word for word in words if one_edit_apart(found[0], word))
            return next(_put(name, found, near, regions), "")
    return ""


def _put(name: str, found: re.Match[str], words: Sequence[str], regions: Collection[str]) -> Iterator[str]:
    options = [name[: found.start()] + word + name[found.end() :] for word in words]
    yield from sorted(options, key=lambda option: (option not in regions, option))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


@lru_cache(maxsize=1)
def _known() -> tuple[frozenset[str], frozenset[str]]:
    """The clouds and the regions of the catalogue, and the installed providers."""
    from providers.catalog import load  # 0.2 s with its imports
    from providers.registry import provider_names

    offers, egress = load().offers(), load().egress()
    places = {(offer.provider, offer.region) for offer in offers} | egress.places
    clouds = {provider for provider, _ in places} | set(provider_names())
    return frozenset(clouds), frozenset(region for _, region in places)
