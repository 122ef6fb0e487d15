"""Faults of single frames by request code: an answer lost, late, doubled, out of order, damaged.

Place in the data path: a proxy that knows RocketMQ's frames applies them (docs/TOXIPROXY.md) to the
links between a node and every client. No cut can do this: the broker has done what it was asked,
the connection lives, and one answer says otherwise or nothing.

Effect: the proxy counts the frames that it hit. None where no frame of these codes passed.

Source: the superset of Toxiproxy in `toxiproxy`; IPTables' string matching in Jepsen tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from chaos.links.base import Link, LinkEffect, Shaping
from chaos.nemesis.base import (
    FaultContext,
    FaultNotPossibleError,
    FaultSpec,
    Observation,
    Parameter,
)
from chaos.nemesis.network.link_fault import LinkFault
from remoting.protocol.codes import RequestCode

__all__ = ["CODES", "SPECS"]

CODES: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "send": (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
        ),
        "pull": (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
        "pop": (RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE),
        "decide": (RequestCode.END_TRANSACTION,),
        "offset": (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET),
        "heartbeat": (RequestCode.HEART_BEAT,),
        "all": (),
    }
)


class FrameFault(LinkFault):
    """Hits frames of the links between a node and every client."""

    def __init__(self, context: FaultContext, name: str, attributes: Mapping[str, int]) -> None:
        super().__init__(context, _one_way)
        params = context.params
        self._shaping = Shaping(
            effect=LinkEffect.FRAMES,
            name=name,
            attributes={
                "codes": CODES[str(params["codes"])],
                "share": int(params["percent"]),
                **attributes,
            },
        )

    async def inject(self) -> None:
        await self._context.links.shape(self._links, self._shaping, self._context.tag)

    async def probe(self) -> Observation:
        counts = await self._context.links.frames(self._context.tag)
        if counts is None:
            return Observation(seen=None, evidence="these links do not count frames")
        text = f"{counts.affected} of {counts.seen} frames were hit"
        if not counts.seen:
            return Observation(seen=None, evidence=text)
        return Observation(seen=counts.affected > 0, evidence=text)


def _one_way(context: FaultContext) -> list[Link]:
    slots = context.world.client_slots
    if not slots:
        raise FaultNotPossibleError("no client dials through links here")
    node = context.pick(str(context.params["target"]))
    if context.params["stream"] == "answers":
        return [Link(who=node, whom=slot) for slot in slots]
    return [Link(who=slot, whom=node) for slot in slots]


def _drop(context: FaultContext) -> FrameFault:
    return FrameFault(context, "frame_drop", {})


def _delay(context: FaultContext) -> FrameFault:
    delay = int(context.params["delay_ms"])
    return FrameFault(context, "frame_delay", {"delay": delay, "jitter": delay // 4})


def _duplicate(context: FaultContext) -> FrameFault:
    return FrameFault(context, "frame_duplicate", {})


def _reorder(context: FaultContext) -> FrameFault:
    return FrameFault(context, "frame_reorder", {"wait": int(context.params["wait_ms"])})


def _damage(context: FaultContext) -> FrameFault:
    params = context.params
    return FrameFault(
        context,
        "frame_damage",
        {"bytes": int(params["bytes"]), "header": int(params["part"] == "header")},
    )


_PROBE: Final = "the proxies count frames of these codes that they hit; unknown if none passed"
_CHOICES: Final = {
    "target": ("leader", "follower", "any"),
    "codes": tuple(CODES),
    "stream": ("answers", "requests"),
}
_PARAMETERS: Final[Mapping[str, Parameter]] = {
    "target": "leader",
    "codes": "send",
    "stream": "answers",
    "percent": 30,
}
_EFFECTS: Final = frozenset({LinkEffect.FRAMES})

_frame_fault = partial(
    FaultSpec, probe=_PROBE, effects=_EFFECTS, seen_elsewhere="this project", choices=_CHOICES
)

SPECS: Final[tuple[FaultSpec, ...]] = (
    _frame_fault(
        name="drop-frames",
        summary="answers, or requests, of given codes between a node and the clients are lost",
        make=_drop,
        parameters=_PARAMETERS,
    ),
    _frame_fault(
        name="delay-frames",
        summary="answers, or requests, of given codes are late; others overtake them",
        make=_delay,
        parameters={**_PARAMETERS, "delay_ms": 400},
    ),
    _frame_fault(
        name="duplicate-frames",
        summary="answers, or requests, of given codes arrive twice",
        make=_duplicate,
        parameters=_PARAMETERS,
    ),
    _frame_fault(
        name="reorder-frames",
        summary="answers, or requests, of given codes are overtaken by the next frame",
        make=_reorder,
        parameters={**_PARAMETERS, "wait_ms": 1000},
    ),
    _frame_fault(
        name="damage-frames",
        summary="bytes of answers, or requests, of given codes are changed",
        make=_damage,
        parameters={**_PARAMETERS, "codes": "pull", "part": "body", "bytes": 1},
        choices={**_CHOICES, "part": ("body", "header")},
    ),
)
