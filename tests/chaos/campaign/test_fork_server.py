"""Runs as forks of one process: their ends are reported, and nothing of them stays."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from pathlib import Path

import pytest

from campaigns.rig.waiting import until
from chaos.campaign.commands import CommandRunner
from chaos.campaign.fork_server import ForkServer, ForkServerError
from chaos.campaign.plan import Experiment

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def program(tmp_path: Path) -> tuple[str, ...]:
    """A program that serves: its commands end as their last word says."""
    path = tmp_path / "program.py"
    path.write_text(
        textwrap.dedent(
            f"""
            import os, pathlib, sys, time
            sys.path.insert(0, {str(ROOT)!r})
            from chaos.campaign.fork_server import serve
            began = []

            def command():
                began.append(sys.argv[1])
                sys.stderr.write(f"began {{len(began)}}\\nthe last of {{sys.argv[1]}}\\n")
                if "--out" in sys.argv:
                    out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
                    if not os.fork():
                        time.sleep(600)  # what a run has started
                    # After that: a fork's own hooks swallow an interrupt that comes meanwhile.
                    out.write_text(f"{{os.getpid()}} {{os.getppid()}}")
                    time.sleep(600)
                if sys.argv[-1] == "bug":
                    raise LookupError("a bug")
                if sys.argv[-1] == "killed":
                    os.kill(os.getpid(), 9)
                sys.exit(int(sys.argv[-1]))

            serve(command)
            """
        )
    )
    return (sys.executable, str(path))


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def members(group: int) -> list[int]:
    """The live processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def test_each_command_has_a_process_of_its_own(tmp_path: Path, program: tuple[str, ...]) -> None:
    async def main() -> None:
        server = ForkServer(program)
        pids, codes, said = [], [], []
        for word in ("0", "2", "killed", "bug", "1"):
            file = tmp_path / "said"
            file.write_text("")
            pids.append(await server.start([word], stderr=file))
            codes.append(await server.wait())
            said.append(file.read_text().splitlines())
        await server.close()
        assert codes == [0, 2, -9, 70, 1]
        assert len(set(pids)) == len(pids)
        # None saw what one before it had left in memory.
        assert {lines[0] for lines in said} == {"began 1"}
        assert said[1][-1] == "the last of 2"

    asyncio.run(main())


def test_an_ended_server_is_an_error(program: tuple[str, ...], tmp_path: Path) -> None:
    async def main() -> None:
        server = ForkServer((*program[:1], "-c", "print('no server')"))
        with pytest.raises(ForkServerError, match="no server"):
            await server.start(["0"], stderr=tmp_path / "said")
        await server.close()

    asyncio.run(main())


async def nothing_of(pid: int, server: int) -> None:
    await until(lambda: is_gone(pid) and not members(pid), "nothing of the run is left")
    assert is_gone(server)


def experiment(folder: Path) -> Experiment:
    return Experiment(world="sim", engine="raft", seed=1, scenario_file=folder / "s.toml")


def test_commands_within_a_server_share_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path.insert(0, {str(ROOT)!r})
            from chaos.campaign.fork_server import serve_here
            began = []

            def command():
                began.append(sys.argv[1])
                print("to nobody")
                sys.stderr.write(f"the last of {{began}}\\n")
                return int(sys.argv[-1])

            serve_here(command)
            """
        )
    )

    async def main() -> None:
        server = ForkServer((sys.executable, str(path)))
        pids, codes, said = [], [], []
        for word in ("0", "2", "1"):
            file = tmp_path / f"said-{word}"
            file.touch()
            pids.append(await server.start([word], stderr=file))
            codes.append(await server.wait())
            said.append(file.read_text())
        await server.start(["no number"], stderr=tmp_path / "said-0")
        with pytest.raises(ForkServerError):
            await server.wait()
        assert "ValueError" in (tmp_path / "said-0").read_text()
        await server.close()
        assert (len(set(pids)), codes) == (1, [0, 2, 1])
        assert said[-1] == "the last of ['0', '2', '1']\n"
        assert is_gone(pids[0])

    asyncio.run(main())


def test_a_run_that_takes_too_long_is_killed(tmp_path: Path, program: tuple[str, ...]) -> None:
    async def main() -> None:
        async with CommandRunner(seconds_max=2, fork_server=program) as runner:
            for number in (1, 2):  # and the next one has a server again
                out = tmp_path / f"pid{number}"
                told = await runner.experiment(experiment(tmp_path), out)
                assert told == "`chaos` was killed after 2 s, the bound"
                pid, server = map(int, out.read_text().split())
                await nothing_of(pid, server)

    asyncio.run(main())


@pytest.mark.parametrize("is_slow", [False, True])
def test_an_interrupted_run_is_stopped(
    is_slow: bool, tmp_path: Path, program: tuple[str, ...]
) -> None:
    """Also one whose server has not said yet which process it is."""
    out = tmp_path / "pid"
    if is_slow:
        program_file = Path(program[1])
        served = "from chaos.campaign import fork_server\nwrite = fork_server._write\n"
        served += "fork_server._write = lambda *told: (time.sleep(2), write(*told))\n"
        serve = "serve(command)"
        program_file.write_text(program_file.read_text().replace(serve, served + serve))

    async def main() -> None:
        async with CommandRunner(seconds_max=600, fork_server=program) as runner:
            task = asyncio.create_task(runner.experiment(experiment(tmp_path), out))
            await until(lambda: out.is_file() and " " in out.read_text(), "the run begins")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        pid, server = map(int, out.read_text().split())
        await nothing_of(pid, server)

    asyncio.run(main())


def test_runs_die_with_their_campaign(tmp_path: Path, program: tuple[str, ...]) -> None:
    out = tmp_path / "pid"
    campaign = os.fork()
    if not campaign:
        runner = CommandRunner(seconds_max=600, fork_server=program)
        try:
            asyncio.run(runner.experiment(experiment(tmp_path), out))
        finally:
            os._exit(0)

    async def main() -> None:
        await until(lambda: out.is_file() and " " in out.read_text(), "the run begins")
        os.kill(campaign, 9)
        pid, server = map(int, out.read_text().split())
        await until(lambda: is_gone(pid) and is_gone(server), "both have gone")
        for left in members(pid):  # the sleeper, which no kernel ends
            os.kill(left, 9)

    asyncio.run(main())
    os.waitpid(campaign, 0)
