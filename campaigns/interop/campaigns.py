"""Long loads of default clients, Java's or ours, while something happens to the brokers.

    python -m campaigns.interop.campaigns kills|members [--client NAME] [--seconds N]

`kills`: a producer, a push consumer and a transactional producer with default settings; the
leader of a group of three is killed every five seconds. No message that was acknowledged may be
lost, none stored twice, every transaction must come to its end.
`members`: ten producers, and ten consumers of one group of which one leaves or joins every two
seconds. No message may be lost, and two seconds after the last change every queue has one owner.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from campaigns.interop.matrix import MARK
from campaigns.interop.programs import java_command
from campaigns.interop.run import JAVA_CLIENTS, print_line
from campaigns.interop.targets import Ledgermq, started
from campaigns.interop.toolchain import Toolchain

PYTHON = "python"
KILL_EVERY_S = 5.0
POLL_S = 0.1
SETTLE_S = 180


class Killer:
    """Kills whoever leads, every few seconds, until it is told to stop.

    Where a busy machine takes longer to start the last one, it is waited for: of three, two are to
    be there.
    """

    def __init__(self, target: Ledgermq) -> None:
        self._target = target
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        group = self._target.group
        while not self._stopped.wait(KILL_EVERY_S):
            while len(group.statuses()) < len(group.brokers) and not self._stopped.wait(POLL_S):
                pass
            self._target.kill_leader()


def run(name: str, client: str, seconds: int, directory: Path) -> dict[str, object]:
    """The campaign's figures."""
    tools = Toolchain.look_up()
    with started("ledgermq-kill" if name == "kills" else "ledgermq-3", directory, tools) as target:
        assert isinstance(target, Ledgermq)
        program = _program(client, tools, directory)
        servers = ";".join(target.name_servers)
        words = [*program, "campaign", name, servers, str(seconds), str(SETTLE_S)]
        killer = Killer(target)
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            figures = _follow(process, killer, directory / "client.log")
        finally:
            process.kill()
            process.wait()
        return {"campaign": name, "client": client, "kills": target.kills, **figures}


def _program(client: str, tools: Toolchain, directory: Path) -> list[str]:
    if client == PYTHON:
        return [sys.executable, "-m", "campaigns.interop.python_campaigns"]
    built = tools.java_client(JAVA_CLIENTS[client])
    return java_command(tools.require_java(), built, directory / "home")


def _follow(process: subprocess.Popen[str], killer: Killer, log: Path) -> dict[str, object]:
    assert process.stdout is not None
    assert process.stdin is not None
    figures: dict[str, object] = {"good": False}
    with log.open("w", encoding="utf-8") as output:
        for line in process.stdout:
            output.write(line)
            output.flush()
            if not line.startswith(MARK):
                continue
            row = json.loads(line.removeprefix(MARK))
            if "event" not in row:
                figures = row
                continue
            if row["event"] == "loaded":
                killer.start()
            else:
                killer.stop()
            process.stdin.write("\n")
            process.stdin.flush()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("campaign", nargs="+", choices=("kills", "members"))
    parser.add_argument(
        "--client", nargs="+", default=["java-5.3.3"], choices=[*sorted(JAVA_CLIENTS), PYTHON]
    )
    parser.add_argument("--seconds", type=int, help="of load; 120 for kills, 60 for members")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    parent = Path("runs") / "interop"
    parent.mkdir(parents=True, exist_ok=True)
    all_figures = []
    for client, name in itertools.product(arguments.client, arguments.campaign):
        root = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent)).resolve()
        seconds = arguments.seconds or (120 if name == "kills" else 60)
        began = time.monotonic()
        figures = run(name, client, seconds, root / "cluster")
        figures["took_s"] = round(time.monotonic() - began)
        print_line(json.dumps(figures, indent=1))
        all_figures.append(figures)
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(all_figures, indent=1) + "\n", encoding="utf-8")
    return 0 if all(figures["good"] for figures in all_figures) else 1


if __name__ == "__main__":
    sys.exit(main())
