"""One direction of one connection: the chain of stages between two sockets.

A chunk read from the source goes through the stages of the proxy's toxics in the order in which
they were added, then into the destination's write buffer. The link also decides when the source
must pause: while any stage is full or the destination's write buffer is. So what is held for a
connection is bounded by the stages' limits and the write buffer's, plus one read.

Whether a toxic hits this link is one draw, compared with the toxicity when the toxic is added and
at every update, from a generator seeded by server seed, proxy, connection number, direction and
toxic name: nothing that happens on other connections or toxics changes it. (Toxiproxy draws again
whenever the toxic or the one behind it changes, and its draws can't be repeated.)

What leaves the chain is followed frame by frame (`toxiproxy.frames`) until it turns out to carry no
frames: then, and without stages, the source's chunks go straight to the destination.

Invariant: the stages' `out` form one chain that ends in the exit; after the exit has closed or
reset, nothing is written any more.
"""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from toxiproxy.frames.link_frames import LinkFrames
from toxiproxy.toxic import Toxic
from toxiproxy.toxics import TOXIC_TYPES, FrameStage, Sink, Stage, Timers

__all__ = ["Endpoint", "Link"]


class Endpoint(Protocol):
    """The socket at either end of a link."""

    def write(self, data: bytes) -> None:
        """Queue bytes to be sent."""

    def close(self) -> None:
        """Send what is queued, then close both directions."""

    def pause(self) -> None:
        """Stop reading until `resume`."""

    def resume(self) -> None:
        """Resume reading."""


class _Exit:
    """The end of the chain: the destination socket."""

    __slots__ = ("_frames", "_on_close", "_on_foreign", "_on_reset", "closed", "write")

    def __init__(
        self,
        *,
        write: Callable[[bytes], None],
        on_close: Callable[[], None],
        on_reset: Callable[[], None],
        frames: LinkFrames | None,
        on_foreign: Callable[[], None],
    ) -> None:
        self.write = write
        self._frames = frames
        self._on_foreign = on_foreign
        self._on_close = on_close
        self._on_reset = on_reset
        self.closed = False

    def feed(self, data: bytes) -> None:
        if self.closed:
            return
        frames = self._frames
        if frames is not None:
            # Before the write: the answer must find its request.
            frames.feed(data)
            if frames.foreign:
                self._frames = None
                self._on_foreign()
        self.write(data)

    @property
    def follows(self) -> bool:
        """Whether bytes must come by `feed`, since they may be frames."""
        return self._frames is not None

    def finish(self) -> None:
        if not self.closed:
            self.closed = True
            self._on_close()

    def reset(self) -> None:
        if not self.closed:
            self.closed = True
            self._on_reset()


class Link:
    """The stages of one direction; `seed` identifies connection and direction.

    `on_route` is called with the fastest callable that takes the source's chunks, whenever it
    changes: the destination's own `write` while no toxic is at work and no frame is followed.
    `frames` None: frames are not followed, and no toxic of frames can be added.
    """

    __slots__ = (
        "_added",
        "_destination",
        "_destination_full",
        "_entries",
        "_exit",
        "_finished",
        "_frames",
        "_head",
        "_on_route",
        "_paused",
        "_seed",
        "_source",
        "_timers",
    )

    def __init__(
        self,
        *,
        source: Endpoint,
        destination: Endpoint,
        toxics: Sequence[Toxic],
        timers: Timers,
        seed: str,
        on_reset: Callable[[], None],
        on_route: Callable[[Callable[[bytes], None]], None],
        frames: LinkFrames | None = None,
    ) -> None:
        self._source = source
        self._destination = destination
        self._timers = timers
        self._seed = seed
        self._on_route = on_route
        self._frames = frames
        self._exit = _Exit(
            write=destination.write,
            on_close=self._close,
            on_reset=on_reset,
            frames=frames,
            on_foreign=self._rechain,
        )
        self._added: set[str] = set()  # toxics that came while the connection was open
        self._entries: list[tuple[str, Stage | None]] = []
        self._head: Sink = self._exit
        self._destination_full = False
        self._paused = False
        self._finished = False
        for toxic in toxics:
            self._entries.append((toxic.name, self._stage(toxic)))
        self._rechain()

    def feed(self, data: bytes) -> None:
        """Take a chunk from the source."""
        self._head.feed(data)
        self._balance()

    def finish(self) -> None:
        """End the stream: the source will send no more; a second call has no effect."""
        if not self._finished:
            self._finished = True
            self._head.finish()

    def add(self, toxic: Toxic) -> None:
        """Append a toxic to the chain; it gets all that the stages before it pass on from now on.

        A draw of its toxicity decides whether it hits this link. The caller keeps names unique.
        """
        self._added.add(toxic.name)
        self._entries.append((toxic.name, self._stage(toxic)))
        self._rechain()

    def update(self, toxic: Toxic) -> None:
        """Apply the toxic's new attributes, and decide again whether it hits this link."""
        place = self._place(toxic.name)
        if place is None:
            return
        stage = self._entries[place][1]
        hit = self._draw(toxic)
        if stage is not None and (hit or stage.stays):
            stage.update(toxic.attributes)
            if stage.stays:
                stage.spare(not hit)
            self._balance()
            return
        if stage is not None:
            self._entries[place] = (toxic.name, None)
            stage.release()
        elif hit:
            self._entries[place] = (toxic.name, self._stage(toxic))
        self._rechain()

    def remove(self, name: str) -> None:
        """Remove a toxic; what its stage holds goes on to the stages behind it at once."""
        place = self._place(name)
        if place is None:
            return
        stage = self._entries.pop(place)[1]
        self._added.discard(name)
        if stage is not None:
            stage.release()
        self._rechain()

    def hits(self, name: str) -> bool:
        """Return whether the toxic of that name is at work here."""
        place = self._place(name)
        stage = None if place is None else self._entries[place][1]
        return stage is not None and not stage.spared

    def destination_full(self, full: bool) -> None:
        """Note that the destination's write buffer is full, or has room again."""
        self._destination_full = full
        self._balance()

    def close(self) -> None:
        """Stop all timers and write nothing more: the connection is gone."""
        self._finished = True
        self._exit.closed = True
        for _, stage in self._entries:
            if stage is not None:
                stage.close()
        self._on_route(_discard)

    def _stage(self, toxic: Toxic) -> Stage | None:
        """Return a stage that leads to the exit, or None where the draw spares this link."""
        kind = TOXIC_TYPES[toxic.type_name]
        hit = self._draw(toxic)
        if not hit and not kind.stays:
            return None
        stage = kind(
            attributes=toxic.attributes,
            out=self._exit,
            timers=self._timers,
            rng=random.Random(f"{self._seed}/{toxic.name}"),
            on_room=self._balance,
        )
        if isinstance(stage, FrameStage):
            # A new stage is the last of the chain: it takes what would have left the link.
            assert self._frames is not None
            stage.follow(self._frames, name=toxic.name)
        if stage.stays:
            stage.spare(not hit)
        return stage

    def _draw(self, toxic: Toxic) -> bool:
        kind = TOXIC_TYPES[toxic.type_name]
        if kind.spares(toxic.attributes, is_new=toxic.name not in self._added):
            return False
        if toxic.toxicity >= 1:
            return True
        # The same seed gives the same draw at each update; only the toxicity may have changed.
        return random.Random(f"{self._seed}/{toxic.name}/hit").random() < toxic.toxicity

    def _place(self, name: str) -> int | None:
        for place, (known, _) in enumerate(self._entries):
            if known == name:
                return place
        return None

    def _rechain(self) -> None:
        """Connect each stage to the next one, and pass the source its route."""
        following: Sink = self._exit
        for _, stage in reversed(self._entries):
            if stage is not None:
                stage.out = following
                following = stage
        self._head = following
        if self._exit.closed or self._finished:
            self._on_route(_discard)
        elif following is self._exit and not self._exit.follows:
            self._on_route(self._exit.write)
        else:
            self._on_route(self.feed)
        self._balance()

    def _balance(self) -> None:
        """Pause or resume the source to match what is held."""
        full = self._is_full()
        if full is self._paused or self._exit.closed:
            return
        self._paused = full
        if full:
            self._source.pause()
        else:
            self._source.resume()

    def _is_full(self) -> bool:
        """Return whether anything that the source's next bytes would reach has no room."""
        for _, stage in self._entries:
            if stage is not None:
                if stage.full:
                    return True
                # What lies behind a swallowing stage is never reached.
                if stage.swallows:
                    return False
        return self._destination_full

    def _close(self) -> None:
        self._on_route(_discard)
        self._destination.close()


def _discard(data: bytes) -> None:
    """Drop bytes for which no destination is left."""
