"""Retention: the decision from which position on the log is retained.

Place in the data path: `broker.process.housekeeping` gathers the facts each second and passes the
decision to `ReplicatedLog.retain_from`, which deletes whole segments below. Pure: time, hour and
the disk's state are arguments.

Rules and names are RocketMQ's (CleanCommitLogService): messages older than
`file_reserved_time_hours` are deleted at the hours of `delete_when`, or at any hour once the disk
is used above `disk_max_used_space_ratio`; above `disk_space_clean_forcibly_ratio` the oldest are
deleted at any age. Beyond RocketMQ: a bound on the log's size, at any hour.

Invariants: never beyond the oldest undecided half and the oldest message that waits for its
delivery; and, unless the disk forces it, never beyond what the slowest live follower lacks. The log
itself retains what the older of its two snapshots needs, and takes newer snapshots if nothing else
holds retention back.
"""

from __future__ import annotations

from dataclasses import dataclass

from raft.replicated_log import RetentionBounds

__all__ = ["Retention", "RetentionFacts", "RetentionPolicy", "decide_retention", "hours_of_day"]

FORCED_SEGMENTS_MAX = 10  # per decision, as RocketMQ's deleteFileBatchMax


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Limits of retention; ratios are percent of the disk, above 100 means never."""

    file_reserved_time_hours: int = 72
    delete_hours: frozenset[int] = frozenset({4})
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    clean_file_forcibly_enable: bool = True
    log_size_bytes_max: int = 0  # 0: not bounded
    segment_size_bytes_max: int = 64 << 20

    @property
    def reserved_ms(self) -> int:
        return self.file_reserved_time_hours * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFacts:
    """Facts to decide on; positions are in bytes, None if there is no such thing."""

    hour: int  # of the day, local time
    disk_used_percent: float
    bounds: RetentionBounds
    expired_position: int  # everything below it is older than its retention time
    half_position: int | None  # the oldest undecided half
    delay_position: int | None  # the oldest message that waits for its delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Decision to retain the log from `position` on; `reason` is for the broker's log."""

    position: int
    reason: str


def decide_retention(policy: RetentionPolicy, facts: RetentionFacts) -> Retention | None:
    """Return the decision, or None if nothing may be deleted."""
    bounds = facts.bounds
    forced = (
        policy.clean_file_forcibly_enable
        and facts.disk_used_percent > policy.disk_space_clean_forcibly_ratio
    )
    crowded = facts.disk_used_percent > policy.disk_max_used_space_ratio
    wanted = [Retention(position=bounds.begin_position, reason="")]
    if crowded or facts.hour in policy.delete_hours:
        reason = f"older than {policy.file_reserved_time_hours} h"
        wanted.append(Retention(position=facts.expired_position, reason=reason))
    if policy.log_size_bytes_max:
        position = bounds.end_position - policy.log_size_bytes_max
        reason = f"the log has more than {policy.log_size_bytes_max} bytes"
        wanted.append(Retention(position=position, reason=reason))
    if forced:
        position = bounds.begin_position + FORCED_SEGMENTS_MAX * policy.segment_size_bytes_max
        reason = f"the disk is used to {facts.disk_used_percent:.0f} %"
        wanted.append(Retention(position=position, reason=reason))
    decided = max(wanted, key=lambda retention: retention.position)
    limits = [bounds.end_position, facts.half_position, facts.delay_position]
    if not forced:
        limits.append(bounds.follower_position)
    position = min(decided.position, *(limit for limit in limits if limit is not None))
    if position <= bounds.begin_position:
        return None
    return Retention(position=position, reason=decided.reason)


def hours_of_day(text: str) -> frozenset[int]:
    """Return the hours in RocketMQ's deleteWhen: "04", or "04;16". Raises ValueError."""
    names = [name.strip() for name in text.split(";") if name.strip()]
    hours = frozenset(int(name) for name in names if name.isascii() and name.isdecimal())
    if not names or len(hours) < len(set(map(str.strip, names))) or max(hours) > 23:
        raise ValueError(f"{text!r} names no hours of the day, as '04' and '04;16' do")
    return hours
