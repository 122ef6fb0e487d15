"""What a producer may conclude from the answer to a message that was stored before (promise G7).

A message that is stored is never told as surely not stored, however long ago it was, whatever of it
is still remembered, and whether it was sent alone or in a batch.
"""

from __future__ import annotations

import random

import pytest

from broker.send.send import SendProcessor
from broker.state.state import StateLimits
from client.connection.answers import error_of
from client.connection.retry import Retries, RetryPolicy
from client.errors import ClientError, MaybeStoredError
from raft.log.log_format import HEADER_SIZE
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import encode_batch_body
from tests.broker.rig import START_MS, Rig, send_fields

LIMITS = StateLimits(dedupe_window_ms=4_000, dedupe_keys_max=24, dedupe_evicted_keys_max=24)


async def send(rig: Rig, keys: list[str], *, as_half: bool, born_ms: int) -> RemotingCommand:
    """Of one key as a message, of several as a batch. An attempt has the time of the first one:
    what clients that stamp each attempt anew can expect ends where the hashes do."""
    handle, more = rig.make(SendProcessor).handle, {}
    if len(keys) == 1:
        if as_half:
            more = {"TRAN_MSG": "true", "PGROUP": "PG"}
        fields = send_fields(key=keys[0], **more)
        code, body = RequestCode.SEND_MESSAGE_V2, b"x"
    else:
        fields, code = send_fields(key=None), RequestCode.SEND_BATCH_MESSAGE
        body = encode_batch_body([(b"x", f"UNIQ_KEY\x01{key}\x02".encode(), 0) for key in keys])
    fields["g"] = str(born_ms)
    return await rig.ask(handle, code, fields, body)


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_stored_is_never_surely_not_stored(tmp_path, seed):
    rng, rig = random.Random(seed), Rig(tmp_path, limits=LIMITS)
    stored: dict[tuple[str, bool], str] = {}  # key and kind -> its first place
    born: dict[str, int] = {}
    seen = {"first place": 0, "unknown": 0, "new": 0}
    for number in range(600):
        rig.now_ms += rng.choice((0, 1, 50, 3_000))
        as_half = rng.random() < 0.2
        known = [key for key, kind in stored if kind == as_half]
        count = 1 if as_half else rng.choice((1, 1, 3))
        again = known and rng.random() < 0.6
        keys = rng.sample(known, min(count, len(known))) if again else []
        while len(keys) < count:
            keys.append(f"{'h' if as_half else 'k'}{number}-{len(keys)}")
        for key in keys:
            born.setdefault(key, rig.now_ms - rng.choice((0, 10, 10_000, -2_500)))
        born_ms = min(born[key] for key in keys)
        born |= dict.fromkeys(keys, born_ms)  # a batch is born as a whole
        answer = await send(rig, keys, as_half=as_half, born_ms=born_ms)
        before = [stored[key, as_half] for key in keys if (key, as_half) in stored]
        if answer.code == ResponseCode.SUCCESS:
            places = answer.ext_fields["msgId"].split(",")
            assert not before or before == places, "stored once, and told where"
            stored |= {(key, as_half): place for key, place in zip(keys, places, strict=True)}
            seen["first place" if before else "new"] += 1
        elif before:
            told = error_of(answer.code, answer.remark, "n0")
            assert not told.definite, answer.remark
            assert not told.retriable, "it would be stored in another group a second time"
            seen["unknown"] += 1
        if rng.random() < 0.02:  # retention takes some of it
            entry = rng.choice(rig.log.entries)
            await rig.log.retain_from(entry.position - HEADER_SIZE)
    assert min(seen.values()) > 5, seen
    rig.queues.close()


async def test_what_is_stored_is_known_as_long_as_the_defaults_promise(tmp_path):
    """A minute of 10,000 messages a second, as long as clients of ours try again by themselves."""
    rig = Rig(tmp_path)
    first = await send(rig, ["mine"], as_half=False, born_ms=START_MS)
    window = rig.state.messages
    for second in range(60):
        rig.now_ms += 1_000
        for part in range(10):
            keys = [f"{second}-{part}-{number}" for number in range(1_000)]
            window.add(keys, range(1_000), rig.now_ms)
    again = await send(rig, ["mine"], as_half=False, born_ms=START_MS)
    assert (again.code, again.ext_fields) == (ResponseCode.SUCCESS, first.ext_fields)
    rig.queues.close()


def test_a_client_is_told_that_it_is_unknown_and_stops():
    error = error_of(13, "outcome unknown: UNIQ_KEY k is older than ...", "n0")
    assert isinstance(error, MaybeStoredError)
    assert not error.definite
    assert not error.retriable
    retries = Retries(RetryPolicy(), deadline_ms=START_MS + 9_000.0, may_move=True)
    retries.begin_attempt(START_MS)
    told = retries.after(error, now_ms=START_MS, luck=0.0)
    assert isinstance(told, ClientError)
    assert not told.definite
    assert error_of(13, "too long", "n0").definite
