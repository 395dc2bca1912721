"""The image that machines start from. The newest image of a family is looked up once an hour and named in the
launch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from providers.clock import Clock
from providers.errors import NotFoundError, SetupError
from providers.gcp.session import Connections

FRESH_S = 3600.0
FORM = re.compile(r"projects/([a-z0-9.:-]+)/global/images/(family/)?([a-z0-9-]+)")
_HINT = "correct providers.gcp.image in tradewind.toml; gcloud compute images list shows the available ones"


@dataclass(frozen=True, slots=True)
class Image:
    """The full name of an image, and the smallest disk for it in GiB."""

    name: str
    disk_gb: int


class Images:
    """Methods raise ProviderError."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections, self._clock = connections, clock
        self._known: dict[str, tuple[float, Image]] = {}

    def named(self, name: str, disk_gb: int) -> Image:
        """The image with this name, for a disk of this size. Raises SetupError if it does not exist or needs a larger
        disk."""
        found_s, image = self._known.get(name, (0.0, None))
        now_s = self._clock.monotonic_s()
        if image is None or now_s - found_s > FRESH_S:
            image = self._found(name)
            self._known[name] = now_s, image
        if disk_gb < image.disk_gb:
            text = f"the image {image.name} needs a disk of {image.disk_gb} GiB, but machines get {disk_gb} GiB"
            raise SetupError(text, hint="raise providers.gcp.disk_gb")
        return image

    def _found(self, name: str) -> Image:
        form = FORM.fullmatch(name)
        if form is None:
            raise SetupError(f"{name!r} is not the name of an image", hint=_HINT)
        project, family, own = form.groups()
        try:
            if family:
                row = self._connections.ask("ImagesClient", "get_from_family", project=project, family=own)
            else:
                row = self._connections.ask("ImagesClient", "get", project=project, image=own)
        except NotFoundError as error:
            raise SetupError(f"the image {name} does not exist", hint=_HINT) from error
        return Image(f"projects/{project}/global/images/{row.name}", int(row.disk_size_gb))
