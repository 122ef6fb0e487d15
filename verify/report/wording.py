"""The wording of the report: what promises, checks and verdicts mean, and how numbers are written.

Pure. Written for somebody who has to decide on this report and has not read the design.
"""

from types import MappingProxyType

__all__ = [
    "EFFECT_WORDS",
    "MODE_SENTENCES",
    "PROMISES",
    "VERDICT_SENTENCES",
    "clipped",
    "count_words",
    "duration",
    "number",
    "seconds",
]

_MS = 1_000_000
_NS = 1_000_000_000

PROMISES = MappingProxyType(
    {
        "G1": ("Durable", "What was acknowledged is still there after the faults."),
        "G2": ("Once", "However often a producer retried, a message is stored once in its group."),
        "G3": ("Order", "Offsets have no hole and no repeat; all replicas hold the same bytes."),
        "G4": (
            "Atomic transactions",
            "An undecided message stays unseen; the first decision holds, whole and once.",
        ),
        "G5": (
            "Replicated state",
            "Topics, consumer offsets and check progress survive a change of leader.",
        ),
        "G6": ("No stale answers", "A leader that was deposed neither acknowledges nor answers."),
        "G7": ("Honest outcomes", "What was reported as failed did not happen after all."),
        "G8": ("Service", "Every feature did what RocketMQ defines for it, and in time."),
    }
)

VERDICT_SENTENCES = MappingProxyType(
    {
        "pass": "Every check that applied to this run held.",
        "fail": "At least one promise was broken. The evidence is listed below.",
        "unknown": "Nothing was seen to be broken, but not everything could be judged.",
    }
)

MODE_SENTENCES = MappingProxyType(
    {
        "pass": "What the mode promises under the faults of this run held.",
        "fail": "At least one thing was broken that the mode promises under these faults.",
        "unknown": VERDICT_SENTENCES["unknown"],
    }
)
"""Of a master and its slaves, which promise not everything."""

EFFECT_WORDS = MappingProxyType(
    {"taken": "took effect", "not_taken": "did not take", "unknown": "not known"}
)


def duration(ns: int | None) -> str:
    """Format a length of time to about three significant digits."""
    if ns is None:
        return "–"
    if abs(ns) < _NS:
        return f"{ns / _MS:.0f} ms"
    return f"{ns / _NS:.2f} s" if abs(ns) < 10 * _NS else f"{ns / _NS:.1f} s"


def seconds(ns: int | None) -> str:
    """Format a moment of the run, in seconds."""
    return "–" if ns is None else f"{ns / _NS:.2f} s"


def number(value: object) -> str:
    """Format a whole number with thin spaces between thousands; anything else with `str`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}".replace(",", "\u202f")
    return str(value)


def count_words(count: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun, as `3 faults`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def clipped(text: str, length_max: int) -> str:
    """Cut `text` to `length_max` characters, with an ellipsis if something is left out."""
    return text if len(text) <= length_max else text[: length_max - 1] + "…"
