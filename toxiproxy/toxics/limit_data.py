"""limit_data{bytes}: closes the connection once `bytes` have gone through.

The count begins when the toxic is added to the connection and survives updates; with 0 the first
byte closes. Source: Toxiproxy `limit_data`.
"""

from toxiproxy.toxics.base import Stage

__all__ = ["LimitDataStage"]


class LimitDataStage(Stage):
    """Counts bytes and ends the stream at the limit."""

    type_name = "limit_data"
    go_name = "LimitDataToxic"
    fields = ("bytes",)

    __slots__ = ("_count",)

    def _begin(self) -> None:
        super()._begin()
        self._count = 0

    def feed(self, data: bytes) -> None:
        if self.ended:
            return
        left = max(0, self.number("bytes") - self._count)
        if left:
            self.out.feed(data[:left])
        self._count += min(left, len(data))
        if self._count >= self.number("bytes"):
            self._end()

    def finish(self) -> None:
        self._end()

    def release(self) -> None:
        """Do nothing: no chunk is held."""
