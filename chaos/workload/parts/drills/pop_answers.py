"""Answers to pops and peeks as text, as the drills of POP write what they expect.

Place in the data path: `pops` has them held against each other and in the history. Pure.

Source: RocketMQ ExtraInfoUtil (startOffsetInfo, msgOffsetInfo, orderCountInfo).
"""

from __future__ import annotations

from chaos.workload.parts.common.shown_answers import values_of
from remoting.protocol.command import RemotingCommand

__all__ = ["pop_ms", "show_peek", "show_pop"]


def pop_ms(answer: RemotingCommand) -> str:
    return answer.ext_fields.get("popTime", "0")


def show_pop(answer: RemotingCommand) -> str:
    if answer.code != 0:
        return str(answer.code)
    field = answer.ext_fields.get
    text = (
        f"0 {values_of(answer)} from {field('startOffsetInfo')} at {field('msgOffsetInfo')},"
        f" {field('restNum')} left, hidden {field('invisibleTime')} in {field('reviveQid')}"
    )
    again = sorted(
        (int(name.partition("%")[2]), count)
        for _, name, count in (each.split(" ") for each in _parts(field("orderCountInfo")))
        if name.startswith("qo")
    )
    if not again:
        return text
    return f"{text}, again {' '.join(f'{at}x{count}' for at, count in again)}"


def _parts(text: str | None) -> list[str]:
    return [each for each in (text or "").split(";") if each.count(" ") == 2]


def show_peek(answer: RemotingCommand) -> str:
    field = answer.ext_fields.get
    left = f"{field('restNum')} left"
    if answer.code != 0:
        return f"{answer.code} nothing, {left}"
    return (
        f"0 {values_of(answer)} from {field('startOffsetInfo')} at {field('msgOffsetInfo')}, {left}"
    )
