"""Every request with any fields: answered or refused, never an exception.

An exception of a handler ends the broker (it is a broken invariant), so nothing that a client may
send must lead to one. Fields and bodies are drawn from values that hurt, over fields that fit.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from campaigns.rig.waiting import turns
from tests.broker.any_request import BODIES, fields_for, handlers
from tests.broker.rig import FakeConnection, Rig

REQUESTS = 5_000


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_request_raises(tmp_path, seed):
    rng, raised = random.Random(seed), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    rig = Rig(tmp_path)
    failing = asyncio.ensure_future(rig.tasks.wait_failed())
    known = handlers(rig)
    for _ in range(REQUESTS):
        code, handler = rng.choice(known)
        fields, body = fields_for(code, rng), rng.choice(BODIES)
        rig.give(handler, code, fields, body, FakeConnection())
        await turns(4)
        assert not failing.done(), (code, fields, body[:80], failing.result())
        assert not raised, (code, fields, body[:80], raised)
    failing.cancel()
    assert len(rig.log.entries) > 20, "some of it was stored"
    await rig.tasks.stop()
    rig.queues.close()
