"""One cluster that the tests share which must leave it as it is: three brokers, a name server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from campaigns.rig.processes import Processes


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with Processes(tmp_path_factory.mktemp("shared") / "cluster") as processes:
        yield processes.start()


@pytest.fixture
def untouched(shared: Processes) -> Iterator[Processes]:
    """The shared cluster; afterwards every process must be the one that it was, and serve."""
    names = [*shared.brokers, "namesrv-0"]
    pids = {name: shared.pid(name) for name in names}
    # A key of its own for each test: one that an earlier file sent may be older than the window of
    # dedupe by now, and its retry is refused then.
    key = f"kept-{uuid.uuid4().hex}"
    kept = shared.send("Kept", b"kept", key)
    yield shared
    assert {name: shared.pid(name) for name in names} == pids
    assert shared.send("Kept", b"kept", key) == kept, "what was stored stands there"
    for name in names:
        assert "Traceback" not in shared.output(name), shared.output(name)[-4000:]
