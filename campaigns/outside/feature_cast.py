"""Who takes part in a run with features: their clients, topics, groups and words of the manifest.

Place in the data path: between the modules of single features and `model_cluster`.
"""

from __future__ import annotations

from typing import Final

from campaigns.outside.client_world import World
from campaigns.outside.feature_client import Feature
from campaigns.outside.feature_clients import (
    SIMPLE_GROUPS,
    SIMPLE_TOPICS,
    Backer,
    Delayer,
    Hearer,
    Locker,
    OrderedPopper,
    Popper,
    Refuser,
    Requester,
)
from campaigns.outside.managing_clients import GONE, MANAGED_GROUPS, Manager, TopicMaker
from campaigns.outside.operator_clients import Assigner, GroupMaker, Questioner, Setter
from campaigns.outside.retrying_clients import (
    RETRYING_GROUPS,
    RETRYING_TOPICS,
    Keeper,
    RadioHearer,
    SlowRefuser,
)
from campaigns.outside.run_rows import Row
from campaigns.outside.waking_clients import (
    WAKING_GROUPS,
    WAKING_TOPICS,
    PopWaker,
    TagReader,
    Waker,
)

__all__ = ["DELETED_TOPIC", "FEATURE_GROUPS", "FEATURE_TOPICS", "MANIFEST", "feature_clients"]

DELETED_TOPIC: Final = GONE
FEATURE_TOPICS: Final = (*SIMPLE_TOPICS, *WAKING_TOPICS, *RETRYING_TOPICS)
FEATURE_GROUPS: Final[Row] = {
    **SIMPLE_GROUPS,
    **MANAGED_GROUPS,
    **WAKING_GROUPS,
    **RETRYING_GROUPS,
}
MANIFEST: Final[Row] = {
    "delays": {"early_ms": 0, "recall_ms": 0, "lost_ms": 500},
    "routes": {"expire_ms": 500, "gone_ms": 500},
}


def feature_clients(world: World) -> list[Feature]:
    """The clients of all features, one process each."""
    return [
        Delayer(world, "delayer", "delayers"),
        Popper(world, "popper", "poppers"),
        OrderedPopper(world, "ordered-popper", "in-order"),
        Locker(world, "locker-1", "lockers"),
        Refuser(world, "refuser", "refusers"),
        Hearer(world, "hearer-1", "hearers"),
        Backer(world, "backer", "backers"),
        Requester(world, "asker", "askers"),
        Manager(world, "manager", "tools"),
        TopicMaker(world, "topic-maker", "tools"),
        Waker(world, "waker", "wakers"),
        PopWaker(world, "pop-waker-1", "pop-wakers"),
        TagReader(world, "tag-reader", "tag-readers"),
        SlowRefuser(world, "slow-reader", "slow-readers"),
        Keeper(world, "keeper-1", "keepers"),
        RadioHearer(world, "radio-hearer", "radio-hearers"),
        Questioner(world, "questioner", "tools"),
        Setter(world, "setter", "tools"),
        GroupMaker(world, "group-maker", "made-group"),
        Assigner(world, "assigner", "sharers"),
    ]
