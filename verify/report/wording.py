"""The words of the report: what promises, checks and verdicts mean, and how numbers are written.

Pure. Written for somebody who has to decide on this report and has not read the design.
"""

from types import MappingProxyType

__all__ = [
    "CHECK_MEANINGS",
    "EFFECT_WORDS",
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
    }
)

VERDICT_SENTENCES = MappingProxyType(
    {
        "pass": "Every check that applied to this run held.",
        "fail": "At least one promise was broken. The evidence is listed below.",
        "unknown": "Nothing was seen to be broken, but not everything could be judged.",
    }
)

EFFECT_WORDS = MappingProxyType(
    {"taken": "took effect", "not_taken": "did not take", "unknown": "not known"}
)

CHECK_MEANINGS = MappingProxyType(
    {
        "A1": "One offset of a queue never shows two different messages.",
        "A2": "No message stands at two places.",
        "A3": "No reader got a message whose send was reported as failed.",
        "A4": "No message vanished from between others that were read.",
        "A5": "Every acknowledged message was read by each group that had to read all.",
        "A6": "No reader jumped over or back within its queue.",
        "A7": "No poll jumped over or back within itself.",
        "A8": "Acknowledged offsets of one sender rise.",
        "A10": "What was acknowledged before another was sent stands before it.",
        "A11": "Nothing was read that nobody sent.",
        "A12": "No group consumed a message twice without a cause.",
        "A13": "Messages of one order group were consumed in the order in which they were sent.",
        "A14": "No reader was kept from known messages for longer than allowed.",
        "A15": "What was seen once is seen again; reads of offsets are not stale.",
        "A16": "The cluster acknowledged again within the time allowed.",
        "A17": "Every replica came back and caught up once the faults were healed.",
        "S1": "Log and queue index agree, unit by unit, on every replica.",
        "S2": "Committed entries are the same on all replicas.",
        "S5": "Consumer offsets are never lost or turned back.",
        "S6": "Nothing was delivered that the committed log does not hold.",
        "S8": "A query by key finds what is there, and nothing else.",
        "T1": "No half message was visible before its commit.",
        "T2": "No rolled-back message was visible.",
        "T3": "Every committed transaction has its message.",
        "T4": "No transaction was committed twice.",
        "T5": "No transaction was both committed and rolled back.",
        "T6": "Every undecided transaction was asked about or discarded in time.",
        "T7": "Nobody was asked about a transaction that was decided.",
        "T8": "Transactions were asked about as often as configured.",
        "T9": "No decided transaction was discarded.",
        "T10": "The bookkeeping of halves and decisions agrees.",
        "T11": "A producer's own outcome and its message agree.",
        "T12": "A decision resolved the transaction that it was for.",
        "R1": "Each term had one leader at most.",
        "R2": "No node voted twice in a term.",
        "R3": "A node's term never fell.",
        "R4": "No leader dropped entries in its own term.",
        "R5": "Logs that agree on an entry agree on all before it.",
        "R6": "No two nodes committed different entries at one index.",
        "R7": "Every leader held all that was committed before its term.",
        "R8": "Commit indexes only rise, and stay within the log.",
        "R9": "What was committed was on a majority of disks.",
        "R10": "Entries are applied in order, each once.",
        "R11": "Votes went only to candidates with a log as new.",
        "R12": "No read was answered from a term that was over.",
    }
)


def duration(ns: int | None) -> str:
    """A length of time with three digits that matter."""
    if ns is None:
        return "–"
    if abs(ns) < _NS:
        return f"{ns / _MS:.0f} ms"
    return f"{ns / _NS:.2f} s" if abs(ns) < 10 * _NS else f"{ns / _NS:.1f} s"


def seconds(ns: int | None) -> str:
    """A moment of the run."""
    return "–" if ns is None else f"{ns / _NS:.2f} s"


def number(value: object) -> str:
    """A whole number with thin groups of thousands; anything else as it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}".replace(",", "\u202f")
    return str(value)


def count_words(count: int, one: str, many: str | None = None) -> str:
    """`3 faults`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def clipped(text: str, length_max: int) -> str:
    """At most so many characters, with a mark where something was left out."""
    return text if len(text) <= length_max else text[: length_max - 1] + "…"
