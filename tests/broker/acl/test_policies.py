"""What entries say: which resource, action and address they mean, and which of them decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.entry.policies import (
    Action,
    BadPolicyError,
    Decision,
    PolicyEntry,
    PolicyKind,
    Resource,
    ResourceKind,
    User,
    UserKind,
    UserStatus,
    decide,
    subject_name,
)


def entry(resource, decision="Allow", actions=("Pub",), sources=(), policy="Custom"):
    return PolicyEntry.read(policy, resource, list(actions), list(sources), decision)


def said(entries, topic="orders", action=Action.PUB, ip="10.1.2.3", kind=ResourceKind.TOPIC):
    return decide(entries, kind, topic, action, ip)


@pytest.mark.parametrize(
    ("text", "topic", "other"),
    [
        ("Topic:orders", True, False),
        ("topic:ord*", True, False),
        ("Topic:*", True, True),
        ("*", True, True),
        ("Group:orders", False, False),
    ],
)
def test_a_resource_means_what_it_says(text, topic, other):
    resource = Resource.of(text)
    assert resource.matches(ResourceKind.TOPIC, "orders") is topic
    assert resource.matches(ResourceKind.TOPIC, "payments") is other
    assert Resource.of(resource.key) == resource


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "Topic:",
        "Any:*",
        "*:orders",
        "Topic:a\n",
        "Topic:" + "a" * 256,
        "Tropic:a",
        ":",
    ],
)
def test_a_text_that_names_no_resource_is_refused(text):
    with pytest.raises(BadPolicyError):
        Resource.of(text)


@pytest.mark.parametrize(
    "values",
    [
        ("Custom", "Topic:a", ["Any"], [], "Allow"),
        ("Custom", "Topic:a", ["Pub", "Pbu"], [], "Allow"),
        ("Custom", "Topic:a", [], [], "Allow"),
        ("Custom", None, ["Pub"], [], "Allow"),
        ("Custom", "Topic:a", ["Pub"], ["10.0.0.300"], "Allow"),
        ("Custom", "Topic:a", ["Pub"], ["10.0.0.1"] * 65, "Allow"),
        ("Custom", "Topic:a", ["Pub"], [], None),
        ("Custom", "Topic:a", ["Pub"], [], "Perhaps"),
        ("Special", "Topic:a", ["Pub"], [], "Allow"),
    ],
)
def test_an_entry_that_can_not_be_read_is_refused(values):
    with pytest.raises(BadPolicyError):
        PolicyEntry.read(*values)


def test_nothing_is_said_where_nothing_fits():
    assert said([]) is None
    assert said([entry("Topic:orders", actions=["Sub"])]) is None
    assert said([entry("Topic:orders", sources=["10.9.0.0/16"])]) is None
    assert said([entry("Topic:orders", sources=["10.9.0.0/16", "10.1.2.3"])]) is Decision.ALLOW
    assert said([entry("Topic:orders", sources=["10.0.0.0/8"])], ip="local") is None


def test_the_entry_that_says_most_decides():
    wide, prefix, longer = entry("*"), entry("Topic:o*", "Deny"), entry("Topic:ord*")
    exact = entry("Topic:orders", "Deny")
    assert said([wide]) is Decision.ALLOW
    assert said([wide, prefix]) is Decision.DENY
    assert said([longer, prefix, wide]) is Decision.ALLOW
    assert said([exact, longer, prefix, wide]) is Decision.DENY
    assert said([entry("Topic:*"), entry("*", "Deny")]) is Decision.ALLOW


def test_custom_entries_come_before_default_ones():
    default = entry("Topic:orders", "Deny", policy="Default")
    assert said([default]) is Decision.DENY
    assert said([default, entry("*")]) is Decision.ALLOW


def test_all_actions_are_every_action():
    for action in Action:
        assert said([entry("*", actions=["All"])], action=action) is Decision.ALLOW


def test_a_subject_is_a_user():
    assert subject_name("User:who") == "who"
    for text in ("who", "User:", "Role:who", ""):
        with pytest.raises(BadPolicyError):
            subject_name(text)


def test_a_password_appears_in_no_text_of_a_user():
    user = User(name="u", password="hush", kind=UserKind.NORMAL, status=UserStatus.ENABLE)
    assert "hush" not in f"{user!r} {user}"


NAMES = st.text("abco*", min_size=1, max_size=4)
ENTRIES = st.builds(
    entry,
    st.one_of(st.just("*"), NAMES.map("Topic:{}".format), NAMES.map("Group:{}".format)),
    st.sampled_from(["Allow", "Deny"]),
    st.lists(st.sampled_from([str(action) for action in Action]), min_size=1, unique=True),
    st.lists(st.sampled_from(["10.0.0.0/8", "10.1.2.3", "::1"]), max_size=2),
    st.sampled_from([str(kind) for kind in PolicyKind]),
)


@given(entries=st.lists(ENTRIES, max_size=6), topic=NAMES, action=st.sampled_from(list(Action)))
def test_what_is_written_is_read_and_the_order_says_nothing(entries, topic, action):
    assert [PolicyEntry.read(*each.texts()) for each in entries] == entries
    assert said(entries, topic, action) is said(entries[::-1], topic, action)
    fitting = [each for each in entries if each.matches(ResourceKind.TOPIC, topic, action, "::1")]
    assert (said(entries, topic, action, "::1") is None) is (not fitting)
    if fitting and len({each.decision for each in fitting}) == 1:
        assert said(entries, topic, action, "::1") is fitting[0].decision
