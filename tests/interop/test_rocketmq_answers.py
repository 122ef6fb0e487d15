"""What ledgermq answers beside what RocketMQ answered to the same conversation.

The answers of a real RocketMQ 5.3.3 are recorded (`conversation.py`); no Java is needed here. An
answer of ours must have the same code, every field of the header and every name in the JSON body,
and as many records with the same properties. What differs on purpose stands in `DIFFERENT`, with
the reason; a difference that is no more is an error too, so that the list stays true.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

from broker.config.config import BrokerConfig
from broker.process.server import Broker
from campaigns.interop.conversation import Conversation, recorded_answers
from campaigns.rig.ports import free_port
from campaigns.rig.waiting import until
from remoting.connections.rpc import RemotingClient
from remoting.errors import RecordError
from remoting.protocol import fastjson
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

_REFUSALS = "a refusal of ours has no fields: clients read none of it"
_PULLS = "the flags of units, which ours have not, are left out: bytes of the hot path"
_BATCHES = "what is the same for every message of a batch is not stored with each"
DIFFERENT: dict[str, str] = {
    "send to no queue": _REFUSALS,
    "send nothing there": _REFUSALS,
    "send too large": _REFUSALS,
    "send to a system topic": _REFUSALS,
    "send too far ahead": _REFUSALS,
    "pull disabled": _REFUSALS,
    "send a delayed batch": _REFUSALS,
    "send a batch of halves": _REFUSALS,
    "send a batch to be retried": _REFUSALS,
    "send an inner batch": _REFUSALS,
    "peek disabled": _REFUSALS,
    "notification disabled": _REFUSALS,
    "polling of nothing": _REFUSALS,
    "polling of no queue": _REFUSALS,
    "pull": _PULLS,
    "lite pull": _PULLS,
    "pull at the end": _PULLS,
    "pull beyond the end": _PULLS,
    "pull far beyond": _PULLS,
    "pull another tag": _PULLS,
    "pull by SQL": _PULLS,
    "pull a batch": _BATCHES,
    "pull what was a batch": _BATCHES,
    "pop": _BATCHES,
    "group config": "no retry policy of groups: retries are by delay level",
    "all groups": "likewise",
    "time span": "times as text, which readers make of the numbers",
    "broker's consume stats": "SELF_TEST_C_GROUP consumes nothing",
    "runtime": "figures of RocketMQ's store and its paths",
    "all topics": "no static topics",
    "all offsets": "slaves read the version; replicas of ours have the log",
}
# Values that must be the same, not only of the same kind.
_EXACT = frozenset({"order", "perm", "readQueueNums", "topicSysFlag", "writeQueueNums"})
# Keys that are names of things (topics, queues, settings), not of fields: any one stands for all.
_TABLES = frozenset(
    {
        "consumerOffset",
        "data",
        "offsetTable",
        "pullOffset",
        "subscriptionGroupTable",
        "subscriptionTable",
        "topicConfigTable",
    }
)


async def held_with_ours(store: Path) -> dict[str, RemotingCommand]:
    address, raft = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    config = BrokerConfig(
        group="broker-a",
        node="n0",
        listen=address,
        raft_listen=raft,
        peers={"n0": raft},
        store=store,
    )
    broker = Broker(config)
    await broker.start()
    serving = asyncio.get_running_loop().create_task(broker.serve())
    rpc = RemotingClient()
    try:
        await until(lambda: broker.leadership.ready)
        conversation = Conversation(rpc, address)
        await conversation.hold()
        return conversation.answers
    finally:
        await rpc.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await broker.stop()


def differences(ours: RemotingCommand, theirs: RemotingCommand) -> list[str]:
    if ours.code != theirs.code:
        return [f"code {ours.code} ({ours.remark}), not {theirs.code} ({theirs.remark})"]
    found = []
    missing = sorted(theirs.ext_fields.keys() - ours.ext_fields.keys())
    if missing:
        found.append(f"no header fields {missing}")
    found += _body_differences(ours.body, theirs.body)
    return found


def _body_differences(ours: bytes, theirs: bytes) -> list[str]:
    if not theirs:
        return []
    if not ours:
        return ["no body"]
    if theirs[:1] in {b"{", b"["}:
        return _json_differences(fastjson.parse(ours), fastjson.parse(theirs), "")
    try:
        records = decode_records(theirs)
    except RecordError:
        return _text_differences(ours, theirs)
    mine = decode_records(ours)
    if len(mine) != len(records):
        return [f"{len(mine)} records, not {len(records)}"]
    found = []
    for one, other in zip(mine, records, strict=True):
        if one.property_map().keys() != other.property_map().keys():
            found.append(
                f"properties {sorted(one.property_map())}, not {sorted(other.property_map())}"
            )
        same = ("topic", "queue_id", "queue_offset", "flag", "sys_flag", "reconsume_times", "body")
        found += [
            f"{name} {getattr(one, name)!r}, not {getattr(other, name)!r}"
            for name in same
            if getattr(one, name) != getattr(other, name)
        ]
    return found


def _text_differences(ours: bytes, theirs: bytes) -> list[str]:
    """Java's properties text: which settings there are is each broker's own."""
    assert b"=" in ours
    assert b"=" in theirs
    return []


def _json_differences(ours: Any, theirs: Any, where: str) -> list[str]:
    if isinstance(theirs, dict):
        if not isinstance(ours, dict):
            return [f"{where or 'body'} is {ours!r}"]
        if where.rpartition(".")[2] in _TABLES:
            if not theirs or not ours:
                return [] if not theirs else [f"{where} is empty"]
            return _json_differences(
                next(iter(ours.values())), next(iter(theirs.values())), f"{where}.*"
            )
        found = []
        for name, value in theirs.items():
            if value is None:
                continue
            if name in _EXACT and ours.get(name) != value:
                found.append(f"{where}.{name} is {ours.get(name)!r}, not {value!r}")
            elif name not in ours:
                found.append(f"no {where}.{name}".replace(" .", " "))
            else:
                found += _json_differences(ours[name], value, f"{where}.{name}".lstrip("."))
        return found
    if isinstance(theirs, list):
        if not isinstance(ours, list):
            return [f"{where} is {ours!r}"]
        if theirs and not ours:
            return [f"{where} is empty"]
        return _json_differences(ours[0], theirs[0], f"{where}[]") if theirs else []
    if isinstance(ours, dict | list) or isinstance(ours, str) != isinstance(theirs, str):
        return [f"{where} is {ours!r}, not like {theirs!r}"]
    return []


async def test_a_conversation_goes_as_with_rocketmq(tmp_path):
    theirs = recorded_answers()
    ours = await held_with_ours(tmp_path / secrets.token_hex(4))
    assert ours.keys() == theirs.keys()
    found = {name: differences(ours[name], theirs[name]) for name in theirs}
    told = {name: what for name, what in found.items() if what}
    unexpected = {  # a code is what clients act on: no other is excused
        name: what
        for name, what in told.items()
        if name not in DIFFERENT or what[0].startswith("code ")
    }
    assert not unexpected, "\n".join(f"{name}: {what}" for name, what in unexpected.items())
    gone = sorted(DIFFERENT.keys() - told.keys())
    assert not gone, f"these no longer differ: {gone}"


def test_the_comparison_sees_differences():
    theirs = RemotingCommand(code=0, ext_fields={"offset": "1"}, body=b'{"a":{"b":1},"perm":6}')
    for ours in (
        RemotingCommand(code=1, ext_fields={"offset": "1"}, body=theirs.body),
        RemotingCommand(code=0, ext_fields={}, body=theirs.body),
        RemotingCommand(code=0, ext_fields={"offset": "1"}, body=b'{"a":{}}'),
        RemotingCommand(code=0, ext_fields={"offset": "1"}, body=b'{"a":{"b":"text"}}'),
        RemotingCommand(code=0, ext_fields={"offset": "1"}),
        RemotingCommand(code=0, ext_fields={"offset": "1"}, body=b'{"a":{"b":1},"perm":2}'),
    ):
        assert differences(ours, theirs), ours
    assert not differences(theirs, theirs)
