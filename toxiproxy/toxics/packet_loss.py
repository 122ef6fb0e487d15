"""packet_loss{loss_rate, correlation}: drops chunks, each as it was read.

`loss_rate` is the probability, 0.1 unless given; `correlation` the probability that a chunk shares
the fate of the one before it instead of drawing its own, so losses come in bursts while their share
stays. TCP has acknowledged the bytes: the receiver gets a stream with holes, not a slow one.

Source: Toxiproxy `packet_loss`, newer than 2.12, by its attributes; the draws are our own.
"""

from types import MappingProxyType

from toxiproxy.toxics.base import Attributes, Stage

__all__ = ["PacketLossStage"]


class PacketLossStage(Stage):
    """Drops chunks by chance."""

    type_name = "packet_loss"
    go_name = "PacketLossToxic"
    fields = ("loss_rate", "correlation")
    defaults = MappingProxyType({"loss_rate": 0.1, "correlation": 0.0})

    __slots__ = ("_lost",)

    def _begin(self) -> None:
        super()._begin()
        self._lost = False

    @classmethod
    def fault_in(cls, attributes: Attributes) -> str | None:
        for field in cls.fields:
            value = attributes[field]
            if isinstance(value, tuple) or not 0 <= value <= 1:
                return f"{field} must be 0 to 1"
        return None

    def feed(self, data: bytes) -> None:
        if self.ended:
            return
        if not self._draw("correlation"):
            self._lost = self._draw("loss_rate")
        if not self._lost:
            self.out.feed(data)

    def finish(self) -> None:
        self._end()

    def release(self) -> None:
        """Do nothing: no chunk is held."""

    def _draw(self, field: str) -> bool:
        probability = self.attributes[field]
        assert not isinstance(probability, tuple)
        return self.rng.random() < probability
