"""The examples of docs/CLIENT.md, run one after the other against one real broker.

What an example prints is compared with the text block behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.real_broker import RealBroker

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "CLIENT.md"
BLOCKS = re.compile(r"```python\n(?P<code>.*?)```\n(?:```text\n(?P<output>.*?)```)?", re.DOTALL)


def examples() -> list[tuple[str, str, str]]:
    """(section, code, expected output)."""
    found = []
    for section in GUIDE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title = section.split("\n", 1)[0]
        for block in BLOCKS.finditer(section):
            assert block["output"] is not None, f"the example of {title!r} says no output"
            found.append((title, block["code"], block["output"]))
    return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    real = RealBroker(tmp_path_factory.mktemp("broker"))
    try:
        asyncio.run_coroutine_threadsafe(real.start(), loop).result(30)
        yield real
    finally:
        asyncio.run_coroutine_threadsafe(real.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize(
    ("title", "code", "output"), examples(), ids=[title for title, _, _ in examples()]
)
@pytest.mark.timeout(60)
def test_an_example_runs_and_prints_what_it_says(
    title: str, code: str, output: str, broker: RealBroker
) -> None:
    runnable = code.replace("127.0.0.1:9876", broker.name_server.address)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(runnable, f"{GUIDE.name}: {title}", "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == output


def test_the_guide_has_examples() -> None:
    assert len(examples()) >= 10
