"""A toxic as the API shows it: the requested effect on a proxy's links.

The value is frozen; an update replaces it under the same name. `stream` is echoed as it was sent,
`direction` is its meaning. Source: Toxiproxy's HTTP API.
"""

from dataclasses import dataclass
from enum import StrEnum

from toxiproxy.toxics import TOXIC_TYPES, Attributes

__all__ = ["Direction", "Toxic"]


class Direction(StrEnum):
    """Upstream: from the client to the server; downstream: from the server to the client."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxic:
    """One toxic of one proxy; `toxicity` is the share of connections that it hits."""

    name: str
    type_name: str
    stream: str
    direction: Direction
    toxicity: float
    attributes: Attributes

    def __post_init__(self) -> None:
        assert self.type_name in TOXIC_TYPES
        assert tuple(self.attributes) == TOXIC_TYPES[self.type_name].fields

    def to_json(self) -> dict[str, object]:
        """Return members in the order in which Toxiproxy writes them."""
        return {
            "attributes": dict(self.attributes),
            "name": self.name,
            "type": self.type_name,
            "stream": self.stream,
            "toxicity": self.toxicity,
        }
