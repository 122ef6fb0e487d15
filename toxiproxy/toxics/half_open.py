"""half_open{new}: swallows everything on one kind of connections, and never closes them.

With `new` 0 those that were open when the toxic was added: the far side seems gone, while who
connects again is served, as after a machine that lost its state. With 1 those that are made after
it: they are accepted and never answered, while open ones go on, as at a full accept queue. An
extension: Toxiproxy's toxics hit both kinds. Removing the toxic closes the connections that it hit,
since bytes are missing from them.

Source: RFC 9293 section 3.5.1 (half-open connections); docs/TOXIPROXY.md.
"""

from toxiproxy.toxics.base import Attributes, Stage, integer

__all__ = ["HalfOpenStage"]


class HalfOpenStage(Stage):
    """Drops every chunk."""

    type_name = "half_open"
    go_name = "HalfOpenToxic"
    fields = ("new",)
    swallows = True

    __slots__ = ()

    @classmethod
    def fault_in(cls, attributes: Attributes) -> str | None:
        if integer(attributes, "new") not in {0, 1}:
            return "new must be 0 (open connections) or 1 (those made later)"
        return None

    @classmethod
    def spares(cls, attributes: Attributes, *, is_new: bool) -> bool:
        return bool(integer(attributes, "new")) is not is_new

    def feed(self, data: bytes) -> None:
        """Drop the chunk."""

    def finish(self) -> None:
        self._end()

    def release(self) -> None:
        self._end()
