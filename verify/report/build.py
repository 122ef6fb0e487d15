"""`ledgermq report RUN`: one HTML file on what a run did, proved and did not prove.

Place in the data path: the end of it; reads the run directory, writes the file by rename. Works for
runs that are damaged or not verified, and says so at the top.

Invariants: the file makes no network request; the template escapes every text of the run; the text
parts need no script.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import jinja2
from plotly.offline import get_plotlyjs

from verify.report.activity import OPS_COLUMNS, measure_activity
from verify.report.charts import pauses_figure, timeline_figure
from verify.report.faults import FAULTS_COLUMNS, Fault, read_faults
from verify.report.page import Reduced, page_values
from verify.report.replicas import RAFT_COLUMNS, Replicas, read_replicas
from verify.report.source import RunSource
from verify.report.unavailability import Pause, pause_of

__all__ = ["build_report"]

_END_NS_MAX = 30 * 24 * 3600 * 1_000_000_000


def build_report(run: Path, output: Path) -> None:
    """Write the report of `run` to `output`.

    Raises NotADirectoryError if `run` is not a directory, OSError if `output` can't be written.
    """
    if not run.is_dir():
        raise NotADirectoryError(f"{run} is not a run directory")
    source = RunSource(run)
    reduced = _reduce(source)
    values = page_values(source, reduced)
    pauses = [
        (fault, reduced.pauses[fault.number])
        for fault in reduced.faults
        if fault.number in reduced.pauses
    ]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("verify.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("report.html.j2").render(
        **values,
        timeline=timeline_figure(
            reduced.activity, reduced.faults, reduced.replicas, end_ns=reduced.end_ns
        ),
        pauses=pauses_figure(pauses) if any(pause.end for _, pause in pauses) else None,
        plotly=get_plotlyjs(),
    )
    draft = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)  # where the disk is full, or `output` is a folder


def _reduce(source: RunSource) -> Reduced:
    faults = read_faults(source.batches("faults", FAULTS_COLUMNS))
    replicas = read_replicas(source.batches("raft", RAFT_COLUMNS))
    end_ns = _end_of(source.manifest, faults, replicas)
    activity = measure_activity(source.batches("ops", OPS_COLUMNS), end_ns=end_ns)
    load_end = _phase_end(source.manifest, "load") or end_ns
    pauses: dict[int, Pause] = {}
    for fault in faults:
        window = (fault.t_start, min(load_end, fault.window(end_ns)[1]))
        if fault.effect != "taken" or window[1] <= window[0]:
            continue
        pause = pause_of(
            fault,
            acks=activity.acks,
            tick_ns=activity.tick_ns,
            changes=replicas.changes,
            window=window,
        )
        if pause is not None:
            pauses[fault.number] = pause
    return Reduced(
        activity=activity, faults=faults, replicas=replicas, pauses=pauses, end_ns=end_ns
    )


def _end_of(manifest: Mapping[str, object], faults: list[Fault], replicas: Replicas) -> int:
    """Return the latest moment that the run records, in nanoseconds."""
    phases = manifest.get("phases")
    ends = [_phase_end(manifest, name) for name in phases] if isinstance(phases, dict) else []
    known = [end for end in ends if end is not None]
    known += [fault.t_healed or fault.t_start for fault in faults]
    known += list(replicas.last_seen.values())
    return min(_END_NS_MAX, max([1, *known]))


def _phase_end(manifest: Mapping[str, object], name: str) -> int | None:
    phases = manifest.get("phases")
    bounds = phases.get(name) if isinstance(phases, dict) else None
    end = bounds[1] if isinstance(bounds, list) and len(bounds) == 2 else None
    return end if isinstance(end, int) else None
