"""The image that machines of a region start from; looked up once an hour."""

from __future__ import annotations

from dataclasses import dataclass

from providers.aws.session import Connections
from providers.clock import Clock
from providers.errors import SetupError

PARAMETER = "ssm:"
FRESH_S = 3600.0


@dataclass(frozen=True, slots=True)
class Image:
    """An AMI and the name of its root disk. `text` is its name and description."""

    id: str
    root_device: str
    text: str = ""


class Images:
    """Methods raise botocore's exceptions."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections, self._clock = connections, clock
        self._known: dict[tuple[str, str], tuple[float, Image]] = {}

    def named(self, name: str, region: str) -> Image:
        """The image of a region. `name` is an AMI, or PARAMETER and the name of a parameter. Raises SetupError."""
        found_s, image = self._known.get((name, region), (0.0, None))
        now_s = self._clock.monotonic_s()
        if image is None or now_s - found_s > FRESH_S:
            image = self._found(name, region)
            self._known[name, region] = now_s, image
        return image

    def _found(self, name: str, region: str) -> Image:
        image_id = name
        if name.startswith(PARAMETER):
            asked = self._connections.client("ssm", region).get_parameter(Name=name.removeprefix(PARAMETER))
            image_id = asked["Parameter"]["Value"]
        rows = self._connections.client("ec2", region).describe_images(ImageIds=[image_id])["Images"]
        if not rows:
            raise SetupError(
                f"the image {image_id} does not exist in {region}",
                hint="correct providers.aws.image in tradewind.toml",
                scope="region",
            )
        text = f"{rows[0].get('Name', '')} {rows[0].get('Description', '')}".strip()
        return Image(image_id, str(rows[0]["RootDeviceName"]), text)
