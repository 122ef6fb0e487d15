"""What a store does before it dies: scripts for known dangers, and any number drawn by chance."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["AFTERLIFE", "SCRIPTS", "Action", "Script", "drawn_script"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that a node does with its store (`campaigns.crash_points.store_life`).

    `sizes`: of the payloads of the entries that come, 0 for a no-op. `cuts`: how many entries a new
    leader cuts off, and other counts. `meanwhile`: what the loop does ahead of which operation of
    what runs on a thread.
    """

    name: str
    sizes: tuple[int, ...] = ()
    cuts: int = 0
    meanwhile: tuple[tuple[int, Action], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    name: str
    actions: tuple[Action, ...]


def _append(*sizes: int) -> Action:
    return Action(name="append", sizes=sizes)


def _follow(*sizes: int, cuts: int = 0) -> Action:
    return Action(name="follow", sizes=sizes, cuts=cuts)


def _round(*meanwhile: tuple[int, Action]) -> Action:
    return Action(name="round", meanwhile=meanwhile)


def _lead(*sizes: int, cuts: int = 0) -> Action:
    return Action(name="lead", sizes=sizes, cuts=cuts)


_VOTE = Action(name="vote")
_VOTE_HERE = Action(name="vote", cuts=1)
_COMMIT = Action(name="commit", cuts=3)
_CHECKPOINT = Action(name="checkpoint")
_SNAPSHOT = Action(name="snapshot")
_DROP = Action(name="drop")
_INSTALL = Action(name="install", cuts=5)
_KILL = Action(name="restart")
_STOP = Action(name="restart", cuts=1)

AFTERLIFE = Script(
    name="afterlife",
    actions=(
        _follow(0, 60, cuts=2),
        _round((3, _append(40))),
        _VOTE,
        _round(),
        _append(200),
        _round(),
        _CHECKPOINT,
    ),
)
"""What a store does that a crash has left: it is cut, voted on, grown over the end of a segment."""


def _overtaken(operation: int) -> Script:
    return Script(
        name=f"a new term's entries come at operation {operation} of a round",
        actions=(
            _follow(0, 30),
            _round((operation, _follow(0, 30)), (operation + 1, _append(30))),
            _round(),
        ),
    )


SCRIPTS: tuple[Script, ...] = (
    *(_overtaken(operation) for operation in (1, 3, 5, 7)),
    Script(
        name="a new term over the end of a segment",
        actions=(_follow(0, 60), _round(), _follow(0, 120, 120, 120), _round(), _append(60)),
    ),
    Script(
        name="a snapshot syncs a new term",
        actions=(
            _follow(0, 60),
            _round(),
            _COMMIT,
            _follow(0, 40),
            Action(name="snapshot", meanwhile=((1, _follow(0, cuts=1)), (4, _append(30)))),
            _round(),
        ),
    ),
    Script(
        name="elections",
        actions=(_VOTE, _round(), _lead(0, 50), _round(), _VOTE, _round((2, _VOTE)), _follow(0)),
    ),
    Script(
        name="cut over the end of a segment",
        actions=(
            _follow(0, 100, 100),
            _round(),
            _append(100, 100, 100),
            _round(),
            _COMMIT,
            _follow(0, 100, cuts=5),
            _round((2, _follow(0, cuts=2))),
            _round(),
        ),
    ),
    Script(
        name="retention",
        actions=(
            _follow(0, 100, 100),
            _append(100, 100, 100),
            _round(),
            _COMMIT,
            _SNAPSHOT,
            _append(100, 100),
            _round(),
            _COMMIT,
            _SNAPSHOT,
            _CHECKPOINT,
            _DROP,
            _append(10),
            _round(),
        ),
    ),
    Script(
        name="an install",
        actions=(_follow(0, 100, 100, 100), _round(), _INSTALL, _round(), _append(50), _round()),
    ),
    Script(
        name="stops and kills",
        actions=(_follow(0, 60), _round(), _STOP, _append(60), _KILL, _follow(0, 90), _STOP),
    ),
)


def drawn_script(seed: int, length: int = 9) -> Script:
    """Any actions, in any order."""
    rng = random.Random(seed)
    return Script(name=f"seed {seed}", actions=tuple(_draw(rng) for _ in range(length)))


def _draw(rng: random.Random) -> Action:
    name = rng.choices(*zip(*_WEIGHTS.items(), strict=True))[0]
    if name in {"append", "follow", "lead"}:
        sizes = tuple(rng.choice((0, 20, 60, 130, 400)) for _ in range(rng.randint(1, 3)))
        return Action(name=name, sizes=sizes, cuts=rng.choice((0, 0, 1, 3)))
    meanwhile: tuple[tuple[int, Action], ...] = ()
    if name in {"round", "snapshot", "checkpoint"} and rng.random() < 0.7:
        places = sorted(rng.randint(1, 9) for _ in range(rng.randint(1, 2)))
        meanwhile = tuple((place, _draw_for_the_loop(rng)) for place in places)
    return Action(name=name, cuts=rng.choice((0, 1, 3)), meanwhile=meanwhile)


def _draw_for_the_loop(rng: random.Random) -> Action:
    name = rng.choice(("append", "follow", "follow", "vote", "commit"))
    sizes = tuple(rng.choice((0, 30)) for _ in range(rng.randint(1, 2)))
    return Action(name=name, sizes=sizes, cuts=rng.choice((0, 1)))


_WEIGHTS = {
    "append": 4,
    "follow": 4,
    "lead": 2,
    "vote": 2,
    "round": 8,
    "commit": 3,
    "checkpoint": 1,
    "snapshot": 2,
    "drop": 1,
    "install": 1,
    "restart": 2,
}
