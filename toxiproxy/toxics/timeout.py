"""timeout{timeout}: swallows everything, and closes after `timeout` ms of silence.

With 0 it never closes: a black hole until it is removed. Data is read and dropped, so the sender
never blocks; the end of the stream goes through. Removing the toxic closes the connection, since
bytes are missing from it. Source: Toxiproxy `timeout`.
"""

from toxiproxy.toxics.base import Attributes, Cancellable, Stage

__all__ = ["TimeoutStage"]


class TimeoutStage(Stage):
    """Drops every chunk."""

    type_name = "timeout"
    go_name = "TimeoutToxic"
    fields = ("timeout",)
    swallows = True

    __slots__ = ("_timer",)

    def _begin(self) -> None:
        super()._begin()
        self._timer: Cancellable | None = None
        self._restart()

    def feed(self, data: bytes) -> None:
        self._restart()

    def finish(self) -> None:
        self._stop()
        self._end()

    def release(self) -> None:
        self._stop()
        self._end()

    def update(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self._restart()

    def close(self) -> None:
        super().close()
        self._stop()

    def _restart(self) -> None:
        self._stop()
        timeout_ms = self.number("timeout")
        if timeout_ms > 0 and not self.ended:
            self._timer = self.timers.call_at(self.timers.now() + timeout_ms / 1000, self._end)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
