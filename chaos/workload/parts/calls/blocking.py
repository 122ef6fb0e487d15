"""What the blocking clients pass on: each of their calls, with flags drawn at random, against the
asyncio client's call of that name.

Place in the data path: none; a client that only records stands in the place of the asyncio one, so
that a flag that is dropped or swapped shows whatever the cluster would have made of it. What the
calls do is seen where other parts make them (`chaos.workload.same_loop`).

Invariant: what is expected follows from the asyncio client's signature and the arguments alone.

Source: docs/CLIENT.md: a blocking client has the calls of the asyncio one, with its defaults.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from chaos.workload.expectations import Expectations
from chaos.workload.same_loop import SameLoop
from client.administer.admin import Admin
from client.blocking.sync_clients import (
    Opened,
    SyncAdmin,
    SyncLitePullConsumer,
    SyncPopConsumer,
    SyncProducer,
    SyncPullConsumer,
    SyncPushConsumer,
    SyncTransactionProducer,
)
from client.consume.lite_pull_consumer import LitePullConsumer
from client.consume.pop_consumer import PopConsumer
from client.consume.pull_consumer import PullConsumer
from client.consume.push_consumer import PushConsumer
from client.produce.producer import Producer
from client.produce.transaction_producer import TransactionProducer

__all__ = ["hold_blocking_calls"]

_CLIENTS: Final[Mapping[type[Opened[Any]], type[Any]]] = {
    SyncProducer: Producer,
    SyncTransactionProducer: TransactionProducer,
    SyncPopConsumer: PopConsumer,
    SyncPullConsumer: PullConsumer,
    SyncLitePullConsumer: LitePullConsumer,
    SyncPushConsumer: PushConsumer,
    SyncAdmin: Admin,
}
_SWEEPS: Final = 4
_GIVEN_SHARE: Final = 0.7  # of the arguments that may be left out
_ANSWER: Final = "the answer"


class _Recorder:
    """An asyncio client that answers every call, and remembers the last one."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self.called = "nothing"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        signature = inspect.signature(getattr(self._kind, name))

        async def call(*args: object, **named: object) -> str:
            self.called = _text(name, signature, args, named)
            return _ANSWER

        return call


async def hold_blocking_calls(expectations: Expectations, rng: random.Random) -> None:
    """Make every call of every blocking client some times, and hold what it passes on."""
    for kind, client in _CLIENTS.items():
        for name, method in vars(kind).items():
            if name.startswith("_") or not inspect.isfunction(method):
                continue
            for _ in range(_SWEEPS):
                await _hold_call(expectations, rng, kind=kind, client=client, name=name)


async def _hold_call(
    expectations: Expectations,
    rng: random.Random,
    *,
    kind: type[Opened[Any]],
    client: type[Any],
    name: str,
) -> None:
    recorder = _Recorder(client)
    loop = SameLoop()
    blocking: Any = kind(loop, recorder, lambda *_: None)
    signature = inspect.signature(getattr(client, name))
    args, named = _draw(inspect.signature(getattr(kind, name)), rng)
    result = getattr(blocking, name)(*args, **named)
    begun = loop.take()
    answer = None if begun is None else await begun
    returned = answer if result is begun else result
    is_answered = inspect.signature(getattr(kind, name)).return_annotation not in {None, "None"}
    expectations.hold(
        f"what {kind.__name__}.{name} passes on",
        expected=f"{_text(name, signature, args, named)}: {_ANSWER if is_answered else 'nothing'}",
        answered=f"{recorder.called}: {_ANSWER if returned == _ANSWER else 'nothing'}",
    )


def _draw(
    signature: inspect.Signature, rng: random.Random
) -> tuple[list[object], dict[str, object]]:
    """Draw arguments for a call, of values that no default has."""
    args: list[object] = []
    named: dict[str, object] = {}
    for parameter in list(signature.parameters.values())[1:]:
        is_optional = parameter.default is not parameter.empty
        if is_optional and rng.random() >= _GIVEN_SHARE:
            continue
        value: object = f"{parameter.name}-{rng.randrange(1_000)}"
        if isinstance(parameter.default, bool):
            value = not parameter.default
        if parameter.kind is parameter.KEYWORD_ONLY or is_optional:
            named[parameter.name] = value
        else:
            args.append(value)
    return args, named


def _text(
    name: str,
    signature: inspect.Signature,
    args: tuple[object, ...] | list[object],
    named: Mapping[str, object],
) -> str:
    """Return a call as text: every argument by name, those left out by their defaults."""
    bound = signature.bind(None, *args, **named)
    bound.apply_defaults()
    shown = ", ".join(f"{key}={value}" for key, value in bound.arguments.items() if key != "self")
    return f"{name}({shown})"
