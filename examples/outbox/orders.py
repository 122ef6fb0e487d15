"""An order, as it travels from the shop to the warehouse."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

__all__ = ["TOPIC", "Order"]

TOPIC: Final = "orders"


@dataclass(frozen=True, slots=True)
class Order:
    """So many of one item. The id names it wherever it goes."""

    id: str
    item: str
    quantity: int

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_bytes(cls, body: bytes) -> Order:
        """Raises ValueError, KeyError or TypeError where the body is no order."""
        return cls(**json.loads(body))
