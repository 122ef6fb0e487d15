"""slow_close{delay}: the end of its direction goes on `delay` ms after it came.

Data is not delayed. Source: Toxiproxy `slow_close`.
"""

from toxiproxy.toxics.base import Cancellable, Stage

__all__ = ["SlowCloseStage"]


class SlowCloseStage(Stage):
    """Holds back the end of the stream."""

    type_name = "slow_close"
    go_name = "SlowCloseToxic"
    fields = ("delay",)

    __slots__ = ("_timer",)

    def _begin(self) -> None:
        super()._begin()
        self._timer: Cancellable | None = None

    def feed(self, data: bytes) -> None:
        if not self.ended:
            self.out.feed(data)

    def finish(self) -> None:
        if not self.ended and self._timer is None:
            wait_s = max(0, self.number("delay")) / 1000
            self._timer = self.timers.call_at(self.timers.now() + wait_s, self._end)

    def release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._end()

    def close(self) -> None:
        super().close()
        if self._timer is not None:
            self._timer.cancel()
