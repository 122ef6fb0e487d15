"""Members that refuse, restart, hold locks and commit what they have consumed.

Place in the data path: as `feature_clients`.
"""

from __future__ import annotations

from typing import Any, Final

from campaigns.outside.feature_client import Feature, group_settings, queue_name
from campaigns.outside.run_rows import MS, SECOND, Row
from campaigns.outside.virtual_time import Process

__all__ = ["RETRYING_GROUPS", "RETRYING_TOPICS", "Keeper", "RadioHearer", "SlowRefuser"]

RETRYING_TOPICS: Final = ("slow", "kept", "radio")
RETRY_DELAY: Final = SECOND
RETRYING_GROUPS: Final[Row] = {
    "slow-readers": group_settings(
        "slow", at_least_once=False, retries_max=2, retry_delay_ms=RETRY_DELAY // MS
    ),
    "keepers": group_settings(
        "kept", at_least_once=False, ordered=True, exclusive=True, retries_max=2, lease_ms=3000
    ),
    "radio-hearers": group_settings("radio", kind="broadcast", progress_ms=1000),
}


class SlowRefuser(Feature):
    """Refuses a message twice, which comes again no sooner than promised; commits as it goes."""

    def run(self) -> Process:
        yield SECOND
        sender = Feature(self.world, "slow-sender", "slow-senders")
        sent = yield from sender.sends_all("slow", 5)
        yield from self.assigns("slow")
        for number, type_ in enumerate(("ok", "fail", "ok", "fail")):
            yield from self.delivers([sent[number]], type_)
            yield from self.commits("slow", number + 1)
        yield RETRY_DELAY
        one = yield from self.comes_again(sent[1], "%RETRY%slow-readers")
        yield from self.delivers([one], "fail")
        other = yield from self.comes_again(sent[3], "%RETRY%slow-readers")
        yield from self.delivers([other])
        yield RETRY_DELAY
        last = yield from self.comes_again(one, "%RETRY%slow-readers")
        yield from self.delivers([last])
        yield from self.delivers([sent[4]])
        yield from self.commits("slow", 5)


class Keeper(Feature):
    """A queue that two members hold in turn, each under a lock that it renews and gives back."""

    def requests_lock(self, f: str = "lock", type_: str = "ok", **fields: Any) -> Process:
        yield from self.does(f, type_, **queue_name("kept"), **fields)

    def is_refused(self) -> Process:
        yield from self.requests_lock(type_="fail", status="REFUSED")

    def run(self) -> Process:
        yield SECOND
        sender = Feature(self.world, "kept-sender", "kept-senders")
        sent = yield from sender.sends_all("kept", 5)
        other = Keeper(self.world, "keeper-2", self.client_group)
        yield from self.requests_lock()
        yield from self.assigns("kept")
        yield from other.is_refused()
        yield from self.delivers([sent[0]])
        yield from self.commits("kept", 1)
        yield SECOND
        yield from self.requests_lock()
        yield from self.delivers([sent[1]], "fail")
        yield from self.delivers([{**sent[1], "reconsume": 1}])
        yield from self.commits("kept", 2)
        for _ in range(3):
            yield SECOND
            yield from self.requests_lock()
            yield from other.is_refused()
        yield from self.assigns(None)
        yield from self.requests_lock("unlock")
        yield from other.requests_lock()
        yield from other.assigns("kept")
        for number in (2, 3, 4):
            yield from other.delivers([sent[number]])
            yield from other.commits("kept", number + 1)
        yield from other.assigns(None)
        yield from other.requests_lock("unlock")
        yield 4 * SECOND
        yield from self.requests_lock()
        yield from self.requests_lock("unlock")


class RadioHearer(Feature):
    """A broadcast member that leaves, comes back, crashes and comes back with what it stored."""

    def run(self) -> Process:
        yield SECOND
        sender = Feature(self.world, "radio-sender", "radio-senders")
        sent = yield from sender.sends_all("radio", 6)
        yield from self.assigns("radio")
        for each in sent[:2]:
            yield from self.delivers([each])
        yield from self.assigns(None)
        yield 500 * MS
        self.restarts()
        yield from self.assigns("radio")
        yield from self.delivers([sent[2]])
        yield 1500 * MS
        for each in sent[3:5]:
            yield from self.delivers([each])
        yield 500 * MS  # it crashed: what it consumed last it had not stored
        self.restarts()
        yield from self.assigns("radio")
        for each in sent[3:]:
            yield from self.delivers([each])
        yield from self.assigns(None)
