"""The commands `chaos campaign` and `chaos minimise`.

Place in the data path: part of `ledgermq.cli`; each calls `chaos.campaign`, and `verify.report` for
the index page. An error that a person can fix is one line on stderr.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from ledgermq.endings import first_of, stop_with
from ledgermq.exit_codes import EXIT_ERROR, EXIT_FAIL, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from ledgermq.options import LocalRun

if TYPE_CHECKING:
    from chaos.campaign.commands import CommandRunner

__all__ = ["chaos_campaign", "chaos_minimise"]

T = TypeVar("T")
_FORK_SERVER: Final = (sys.executable, "-m", "ledgermq.fork_server")
_JUDGE_SERVER: Final = (sys.executable, "-m", "ledgermq.judge_server")
_EXIT_CODES: Final = {"pass": EXIT_OK, "fail": EXIT_FAIL, "unknown": EXIT_ERROR}


def chaos_campaign(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Default: runs/campaigns/NAME.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=64, help="Runs at once in the world sim.")
    ] = None,
    with_spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Have Spark judge some, as the file says.")
    ] = True,
    with_minimise: Annotated[
        bool, typer.Option("--minimise/--no-minimise", help="Minimise failures, as the file says.")
    ] = True,
    anew: Annotated[bool, typer.Option("--anew", help="Remove what DIR holds first.")] = False,
) -> None:
    """Run every world, engine, scenario and seed of a file; go on where an earlier one was ended.

    DIR gets an index page, index.json and junit.xml. Exit code: 0 pass, 1 fail, 2 unknown.
    """
    from chaos.campaign.campaign import CampaignOptions, run_campaign  # noqa: PLC0415
    from chaos.campaign.plan import CampaignError, load_campaign  # noqa: PLC0415
    from chaos.campaign.progress import (  # noqa: PLC0415
        PROGRESS_FILE,
        ProgressError,
        source_digest,
    )
    from verify.report.campaign_page import PAGE_FILE, build_campaign_page  # noqa: PLC0415

    try:
        campaign = load_campaign(file)
    except (CampaignError, OSError) as error:
        stop_with(error, EXIT_USAGE)
    folder = (out or Path("runs") / "campaigns" / campaign.name).resolve()
    if folder.exists() and any(folder.iterdir()):
        if not (folder / PROGRESS_FILE).is_file():
            stop_with(f"{folder} is not empty, and holds no campaign", EXIT_USAGE)
        if anew:
            shutil.rmtree(folder)
    options = CampaignOptions(
        folder=folder,
        sources=source_digest(),
        jobs=jobs,
        with_spark=with_spark,
        with_minimise=with_minimise,
        report=_report,
        publish=build_campaign_page,
    )
    minutes_max = campaign.judging.minutes_max
    again = shlex.join(["ledgermq", "chaos", "campaign", str(file), "--out", str(folder)])
    try:
        verdict = _to_the_end(
            lambda runner: run_campaign(campaign, options, runner), minutes_max=minutes_max
        )
    except ProgressError as error:
        stop_with(f"{error}; --anew removes it", EXIT_USAGE)
    except OSError as error:
        stop_with(error)
    except asyncio.CancelledError:
        _report(
            f"interrupted: no process is left, and what is done is kept; it goes on by `{again}`"
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    sys.stdout.write(f"verdict: {verdict}\nindex: {folder / PAGE_FILE}\n")
    raise typer.Exit(_EXIT_CODES[verdict])


def chaos_minimise(
    run: LocalRun,
    attempts: Annotated[int, typer.Option(min=1, help="At most so many runs.")] = 100,
    repeats: Annotated[
        int, typer.Option(min=1, help="Of each attempt; in the world sim all are the same.")
    ] = 3,
    check: Annotated[
        str | None, typer.Option(help="A4, say. Default: the first with a promise that failed.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Default: RUN-minimised.")] = None,
    minutes_max: Annotated[float, typer.Option(min=0.1, help="Of one attempt.")] = 15.0,
) -> None:
    """Take faults and work away from a run that failed, as long as the same check still fails."""
    from chaos.campaign.minimise import MinimiseError, minimise_run  # noqa: PLC0415

    folder = (out or run.with_name(f"{run.name}-minimised")).resolve()
    try:
        found = _to_the_end(
            lambda runner: minimise_run(
                run.resolve(),
                folder,
                runner=runner,
                attempts=attempts,
                repeats=repeats,
                check=check,
                report=_report,
            ),
            minutes_max=minutes_max,
        )
    except MinimiseError as error:
        stop_with(error, EXIT_USAGE)
    except OSError as error:
        stop_with(error)
    except asyncio.CancelledError:
        _report(f"interrupted: no process is left; {folder} holds the smallest so far, if any")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if not found.repeated:
        _report(f"not repeated: {found.failed} of {found.ran} runs failed {found.check} again")
        raise typer.Exit(EXIT_ERROR)
    faults = ", ".join(found.faults) or "no fault"
    ended = "" if found.is_complete else "; the attempts ran out before nothing more could go"
    sys.stdout.write(
        f"{found.check} still fails, {found.failed} of {found.ran} times, with {faults} in"
        f" {found.load_s:g} s ({found.faults_before} faults in {found.load_s_before:g} s before)\n"
        f"{found.attempts} attempts in {found.took_s:g} s{ended}\n"
        f"again: {found.command}\n"
    )


def _to_the_end(
    work: Callable[[CommandRunner], Coroutine[Any, Any, T]], *, minutes_max: float
) -> T:
    """Run it; a stop signal cancels it, so that it stops what it started.

    `minutes_max`: of one command of its runner.

    Raises CancelledError where one came, and what the work raises.
    """
    from chaos.campaign.commands import CommandRunner  # noqa: PLC0415
    from chaos.cluster.stop_signals import heeded_stop_signals  # noqa: PLC0415

    async def main() -> T:
        loop = asyncio.get_running_loop()
        seconds_max = minutes_max * 60
        async with CommandRunner(
            seconds_max=seconds_max, fork_server=_FORK_SERVER, judge_server=_JUDGE_SERVER
        ) as runner:
            task = asyncio.ensure_future(work(runner))
            for number in heeded_stop_signals():
                loop.add_signal_handler(number, task.cancel)
            return await task

    try:
        return asyncio.run(main())
    except ExceptionGroup as errors:  # of runs side by side; the first says what is wrong
        raise first_of(errors) from errors


def _report(text: str) -> None:
    sys.stderr.write(f"ledgermq: {text}\n")
    sys.stderr.flush()
