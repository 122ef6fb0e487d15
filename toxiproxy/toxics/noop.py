"""noop: lets everything through; for tests of the API and of the chain."""

from toxiproxy.toxics.base import Stage

__all__ = ["NoopStage"]


class NoopStage(Stage):
    """Passes on what it gets."""

    type_name = "noop"
    go_name = "NoopToxic"

    __slots__ = ()

    def feed(self, data: bytes) -> None:
        if not self.ended:
            self.out.feed(data)

    def finish(self) -> None:
        self._end()

    def release(self) -> None:
        """Do nothing: no chunk is held."""
