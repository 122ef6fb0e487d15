"""plain_acl.yml: what its keys mean, and what is said of those that can't be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.access.accounts import AclFileError, parse_table
from broker.entry.permission import Permission

SHIPPED = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB

  - accessKey: rocketmq2
    secretKey: 012345678
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""


def test_the_shape_that_rocketmq_ships_is_read():
    table = parse_table(SHIPPED)
    assert table.is_white("10.10.103.7")
    assert not table.is_white("10.10.104.7")
    plain, admin = table.accounts["RocketMQ"], table.accounts["rocketmq2"]
    assert plain.secret == "12345678"
    assert admin.secret == "012345678"  # no octal number
    assert not plain.admin
    assert admin.admin
    assert not plain.white_addresses.matches("127.0.0.1")
    assert admin.white_addresses.matches("192.168.1.200")
    assert table.unknown_keys == ()
    assert "12345678" not in repr(table)


@pytest.mark.parametrize(
    ("resource", "needed", "allowed"),
    [
        ("topicA", Permission.SUB, False),
        ("topicB", Permission.PUB, True),
        ("topicC", Permission.PUB, False),
        ("topicC", Permission.SUB, True),
        ("topicX", Permission.SUB, False),
        ("%RETRY%groupA", Permission.SUB, False),
        ("%RETRY%groupB", Permission.SUB, True),
        ("%RETRY%groupX", Permission.SUB, True),
        ("%RETRY%groupX", Permission.PUB, False),
    ],
)
def test_permissions_by_name_win_over_defaults(resource, needed, allowed):
    assert parse_table(SHIPPED).accounts["RocketMQ"].may(resource, needed) is allowed


def test_an_administrator_may_everything_unless_the_file_names_what():
    text = "accounts:\n- {accessKey: account1, secretKey: secret12, admin: true}"
    assert parse_table(text).accounts["account1"].may("T", Permission.PUB)
    text = text.replace("admin: true", "admin: true, topicPerms: [T=SUB]")
    account = parse_table(text).accounts["account1"]
    assert account.may("T", Permission.SUB)
    assert not account.may("T", Permission.PUB)


@pytest.mark.parametrize("text", ["", "# nothing", "accounts:", "accounts: []"])
def test_an_empty_file_lets_nobody_in(text):
    table = parse_table(text)
    assert not table.accounts
    assert not table.is_white("127.0.0.1")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a", "map of keys"),
        ("accounts: 3", "accounts: must be a list"),
        ("accounts: [3]", "accounts[0]: must be a map"),
        ("accounts:\n- {accessKey: account1}", "accounts[0].secretKey"),
        ("accounts:\n- {accessKey: abc, secretKey: secret12}", "accounts[0].accessKey"),
        ("accounts:\n- {accessKey: account1, secretKey: secret12, admin: maybe}", "admin"),
        ("accounts:\n- {accessKey: account1, secretKey: [secret12]}", "must be one value"),
        (
            "accounts:\n- {accessKey: account1, secretKey: secret12, topicPerms: [T]}",
            "'T' is not name=permission",
        ),
        (
            "accounts:\n- {accessKey: account1, secretKey: secret12, topicPerms: [T=ALL]}",
            "'ALL' is not one of DENY",
        ),
        (
            "accounts:\n- {accessKey: account1, secretKey: secret12, defaultTopicPerm: X}",
            "defaultTopicPerm: 'X'",
        ),
        (
            "accounts:\n- {accessKey: account1, secretKey: secret12, whiteRemoteAddress: x}",
            "whiteRemoteAddress: 'x'",
        ),
        ("globalWhiteRemoteAddresses: [x]", "globalWhiteRemoteAddresses[0]: 'x'"),
        (
            "accounts:\n- {accessKey: account1, secretKey: secret12}\n"
            "- {accessKey: account1, secretKey: secret12}",
            "occurs twice",
        ),
        ("accounts:\n- accessKey: account1\n  secretKey: 'secret12", "not YAML"),
        ("!!python/object/apply:os.system [ls]", "map of keys"),
        ("#" * (1 << 20) + "\n", "more than"),
    ],
)
def test_what_can_not_be_used_is_named_and_no_secret_is_quoted(text, told):
    with pytest.raises(AclFileError) as caught:
        parse_table(text)
    assert told in str(caught.value)
    assert "secret12" not in str(caught.value)


def test_unknown_keys_are_told():
    text = "acounts: []\naccounts:\n- {accessKey: account1, secretKey: secret12, topicPerm: [x]}"
    assert parse_table(text).unknown_keys == ("acounts", "accounts[0].topicPerm")


@given(st.text(max_size=200))
def test_any_text_is_a_table_or_refused(text):
    try:
        parse_table(text)
    except AclFileError:
        return
