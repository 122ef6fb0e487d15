"""The figures of the report, as plain plotly figures: data and layout; no plotly code runs here.

Place in the data path: takes the results of `activity`, `faults`, `replicas` and `unavailability`,
and returns JSON that the page draws. One time axis carries throughput, latency, roles and terms, so
that a fault's shading runs through all of them.

Invariants: colours are those of Okabe and Ito, distinct without colour vision, and never the only
sign (dashes, labels and positions say the same); text of the run is escaped, since plotly
interprets a little HTML in its labels.
"""

import html
from collections.abc import Sequence

from verify.report.activity import Activity
from verify.report.faults import Fault
from verify.report.replicas import Replicas, Span
from verify.report.unavailability import Pause
from verify.report.wording import clipped, duration

__all__ = ["Figure", "pauses_figure", "timeline_figure"]

Figure = dict[str, object]

BLUE, SKY, GREEN, ORANGE = "#0072B2", "#56B4E9", "#009E73", "#E69F00"
VERMILION, PURPLE, GREY, INK = "#D55E00", "#CC79A7", "#9AA5B1", "#1F2933"
_LINES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_NS = 1_000_000_000
_SHADES = {
    "taken": {"fillcolor": VERMILION, "opacity": 0.13},
    "not_taken": {"fillcolor": GREY, "opacity": 0.18},
    "unknown": {"fillcolor": ORANGE, "opacity": 0.18},
}
_FONT = {"family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "size": 13, "color": INK}
_LANE_PX = 30
_LABELS_PX = 20


def timeline_figure(
    activity: Activity, faults: Sequence[Fault], replicas: Replicas, *, end_ns: int
) -> Figure:
    """Draw throughput, latency, roles and terms over the time of the run, faults shaded."""
    nodes = [_node(group, name) for group, name in replicas.nodes]
    heights = {"rate": 210, "latency": 210, "roles": max(1, len(nodes)) * _LANE_PX, "terms": 120}
    if not nodes:
        heights = {"rate": 210, "latency": 210}
    domains, total = _domains(list(heights.values()))
    data = [*_rate_traces(activity), *_latency_traces(activity)]
    if nodes:
        data += [*_role_traces(replicas.spans()), *_term_traces(replicas)]
    return {
        "data": data,
        "layout": {
            **_base_layout(total + 130),
            **_timeline_axes(list(heights), domains, nodes, end_ns),
            "barmode": "overlay",
            "bargap": 0.35,
            "hovermode": "closest",
            **_legends(domains, total),
            "shapes": [_shade(fault, end_ns) for fault in faults],
            "annotations": [
                *[_label(fault, end_ns) for fault in faults],
                *[
                    _row_title(text, domain[1])
                    for text, domain in zip(
                        ("Throughput", "Latency of acknowledged sends", "Roles", "Terms"),
                        domains,
                        strict=False,
                    )
                ],
            ],
        },
    }


def _timeline_axes(
    rows: Sequence[str], domains: Sequence[tuple[float, float]], nodes: Sequence[str], end_ns: int
) -> Figure:
    """Return the axis of time that all rows share, and each row's own."""
    axes: Figure = {
        "xaxis": {
            "title": {"text": "seconds since the start of the run"},
            "range": [0, end_ns / _NS],
            "anchor": f"y{len(rows)}" if len(rows) > 1 else "y",
            "showgrid": True,
            "gridcolor": "#E4E7EB",
            "zeroline": False,
        }
    }
    titles = {"rate": "per second", "latency": "ms", "roles": "", "terms": "term"}
    for place, (name, domain) in enumerate(zip(rows, domains, strict=True), start=1):
        axes[f"yaxis{'' if place == 1 else place}"] = {
            "domain": domain,
            "anchor": "x",
            "title": {"text": titles[name]},
            "gridcolor": "#E4E7EB",
            "zeroline": False,
            "automargin": True,
            **({"type": "log", "dtick": "D2", "tickformat": "~g"} if name == "latency" else {}),
            **({"rangemode": "tozero"} if name == "rate" else {}),
            **(
                {"categoryorder": "array", "categoryarray": nodes[::-1], "showgrid": False}
                if name == "roles"
                else {}
            ),
            **({"tickformat": "d", "nticks": 6} if name == "terms" else {}),
        }
    return axes


def pauses_figure(pauses: Sequence[tuple[Fault, Pause]]) -> Figure:
    """Draw one bar per fault: its pause, split where the trace allows."""
    shown = [(fault, pause) for fault, pause in pauses if pause.length is not None]
    labels = [f"{fault.number} · {_plain(fault.name)}" for fault, _ in shown]
    parts: list[tuple[str, str, list[int | None]]] = [
        ("detect", ORANGE, [pause.detect for _, pause in shown]),
        ("elect", BLUE, [pause.elect for _, pause in shown]),
        ("recover", GREEN, [pause.recover for _, pause in shown]),
        (
            "no election in it",
            GREY,
            [pause.length if pause.detect is None else None for _, pause in shown],
        ),
    ]
    data: list[Figure] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": labels,
            "x": [None if value is None else value / 1e6 for value in values],
            "marker": {"color": color, "line": {"width": 1, "color": "white"}},
            "text": ["" if value is None else f"{name} {duration(value)}" for value in values],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "hovertemplate": "%{x:.0f} ms<extra>" + name + "</extra>",
        }
        for name, color, values in parts
        if any(value is not None for value in values)
    ]
    return {
        "data": data,
        "layout": {
            **_base_layout(150 + 28 * len(shown)),
            "barmode": "stack",
            "bargap": 0.3,
            "xaxis": {
                "title": {"text": "milliseconds without an acknowledgement"},
                "gridcolor": "#E4E7EB",
                "rangemode": "tozero",
            },
            "yaxis": {
                "autorange": "reversed",
                "automargin": True,
                "type": "category",
                "ticksuffix": "  ",
            },
            "uniformtext": {"mode": "hide", "minsize": 11},
            "legend": {
                "orientation": "h",
                "x": 1,
                "xanchor": "right",
                "y": 1,
                "yanchor": "bottom",
                "traceorder": "normal",
            },
        },
    }


def _base_layout(height: int) -> Figure:
    return {
        "height": height,
        "margin": {"l": 70, "r": 20, "t": 76, "b": 50},
        "font": _FONT,
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
    }


def _domains(heights: Sequence[int]) -> tuple[list[tuple[float, float]], int]:
    """Return the vertical range of each row of the figure, from the top, and the total height."""
    gap = 46
    total = sum(heights) + gap * (len(heights) - 1)
    domains: list[tuple[float, float]] = []
    top = total
    for height in heights:
        domains.append(((top - height) / total, top / total))
        top -= height + gap
    return domains, total


def _legends(domains: Sequence[tuple[float, float]], total: int) -> Figure:
    """Place one legend per row, right above it; the first one above the faults' numbers."""
    return {
        f"legend{'' if place == 1 else place}": {
            "orientation": "h",
            "x": 1,
            "xanchor": "right",
            "y": domain[1] + (_LABELS_PX / total if place == 1 else 0),
            "yanchor": "bottom",
            "traceorder": "normal",
            "font": {"size": 12},
            "bgcolor": "rgba(255,255,255,0)",
        }
        for place, domain in enumerate(domains, start=1)
    }


def _rate_traces(activity: Activity) -> list[Figure]:
    series = (
        ("acknowledged sends", activity.writes, BLUE, "solid"),
        ("reads with an answer", activity.reads, GREEN, "dash"),
        ("refused (fail)", activity.refused, ORANGE, "dot"),
        ("outcome unknown (info)", activity.unknown, VERMILION, "dashdot"),
    )
    return [
        _line(
            name,
            x=activity.times_s,
            y=activity.rate(counts),
            style=(color, dash),
            axis="y",
            hover="%{y:.0f}/s",
        )
        for name, counts, color, dash in series
        if counts.any()
    ]


def _latency_traces(activity: Activity) -> list[Figure]:
    return [
        _line(
            name,
            x=activity.times_s,
            y=activity.percentile_ms(share),
            style=(color, dash),
            axis="y2",
            hover="%{y:.3g} ms",
        )
        for name, share, color, dash in (
            ("p50", 0.5, SKY, "solid"),
            ("p99", 0.99, PURPLE, "dash"),
        )
    ]


def _line(
    name: str,
    *,
    x: Sequence[float],
    y: Sequence[float | None],
    style: tuple[str, str],
    axis: str,
    hover: str,
    shape: str = "linear",
) -> Figure:
    color, dash = style
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "xaxis": "x",
        "yaxis": axis,
        "legend": axis.replace("y", "legend"),
        "line": {"color": color, "dash": dash, "width": 1.8, "shape": shape},
        "hovertemplate": f"{hover} at %{{x:.1f}} s<extra>{name}</extra>",
    }


def _role_traces(spans: Sequence[Span]) -> list[Figure]:
    """Draw a bar for each span, one trace per role; a gap is a node that was down."""
    styles = (
        ("follower", "#CBD2D9", "follower"),
        ("candidate", ORANGE, "candidate"),
        ("leader", BLUE, "leader"),
    )
    traces: list[Figure] = []
    for role, color, name in styles:
        chosen = [span for span in spans if span.role == role]
        if not chosen:
            continue
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [_node(span.group, span.node) for span in chosen],
                "base": [span.begin / _NS for span in chosen],
                "x": [(span.end - span.begin) / _NS for span in chosen],
                "xaxis": "x",
                "yaxis": "y3",
                "legend": "legend3",
                "marker": {"color": color, "line": {"width": 0}},
                "text": [f"term {span.term}" if role == "leader" else "" for span in chosen],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "constraintext": "both",
                "customdata": [[span.term, duration(span.end - span.begin)] for span in chosen],
                "hovertemplate": (
                    "%{y}: "
                    + name
                    + " of term %{customdata[0]} for %{customdata[1]}<extra></extra>"
                ),
            }
        )
    return traces


def _term_traces(replicas: Replicas) -> list[Figure]:
    traces: list[Figure] = []
    for place, ((group, name), terms) in enumerate(sorted(replicas.terms.items())):
        times = sorted(terms)
        trace = _line(
            _node(group, name),
            x=[float(time) for time in times],
            y=[float(terms[time]) for time in times],
            style=(_LINES[place % len(_LINES)], _DASHES[place % len(_DASHES)]),
            axis="y4",
            hover="term %{y:.0f}",
            shape="hv",
        )
        traces.append(trace)
    return traces


def _shade(fault: Fault, end_ns: int) -> Figure:
    begin, end = fault.window(end_ns)
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": begin / _NS,
        "x1": end / _NS,
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "line": {"width": 1, "color": GREY, "dash": "solid" if fault.effect == "taken" else "dot"},
        **_SHADES.get(fault.effect, _SHADES["unknown"]),
    }


def _label(fault: Fault, end_ns: int) -> Figure:
    """Draw the fault's number above its shading; the table and the hover text have the details."""
    begin, end = fault.window(end_ns)
    mark = {"taken": "", "not_taken": " ✗"}.get(fault.effect, " ?")
    return {
        "x": (begin + end) / 2 / _NS,
        "xref": "x",
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "text": f"<b>{fault.number}</b>{mark}",
        "hovertext": _plain(f"{fault.number}: {fault.name} on {', '.join(fault.targets)}"),
        "font": {"size": 12, "color": VERMILION if fault.effect == "taken" else INK},
    }


def _row_title(text: str, top: float) -> Figure:
    return {
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": top,
        "yref": "paper",
        "yanchor": "bottom",
        "yshift": _LABELS_PX + 4 if top == 1 else 4,
        "showarrow": False,
        "text": f"<b>{text}</b>",
        "font": {"size": 13},
    }


def _node(group: str, name: str) -> str:
    return _plain(f"{group}/{name}")


def _plain(text: str) -> str:
    """Escape and clip text of the run so that plotly does not interpret it."""
    return html.escape(clipped(text, 120))
