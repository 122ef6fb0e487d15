"""reset_peer{timeout}: `timeout` ms after the first bytes or the end, both ends get a TCP reset.

The bytes that start the timeout and all after them are dropped. Source: Toxiproxy `reset_peer`;
here the reset also reaches connections that were open before the toxic was added, and a toxicity of
0 resets nothing.
"""

from toxiproxy.toxics.base import Cancellable, Stage

__all__ = ["ResetPeerStage"]


class ResetPeerStage(Stage):
    """Breaks the connection when its direction is first used."""

    type_name = "reset_peer"
    go_name = "ResetToxic"
    fields = ("timeout",)
    swallows = True

    __slots__ = ("_timer",)

    def _begin(self) -> None:
        super()._begin()
        self._timer: Cancellable | None = None

    def feed(self, data: bytes) -> None:
        self._arm()

    def finish(self) -> None:
        self._arm()

    def release(self) -> None:
        """Reset at once if one is pending: dropped bytes can't come back."""
        if self._timer is not None:
            self._timer.cancel()
            self._fire()

    def close(self) -> None:
        super().close()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is None and not self.ended:
            wait_s = max(0, self.number("timeout")) / 1000
            self._timer = self.timers.call_at(self.timers.now() + wait_s, self._fire)

    def _fire(self) -> None:
        if not self.ended:
            self.reset()
