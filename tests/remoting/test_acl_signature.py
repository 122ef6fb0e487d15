"""Signatures are those of RocketMQ's clients, and every part that is signed counts."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import UnencodableError
from remoting.protocol.acl_signature import (
    ACCESS_KEY_FIELD,
    SIGNATURE_FIELD,
    Signer,
    signature_of,
    signatures_equal,
)
from remoting.protocol.command import RemotingCommand

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


def by_openssl(content: bytes, secret: str) -> str:
    """A second implementation."""
    digest = subprocess.run(
        ["openssl", "dgst", "-sha1", "-hmac", secret, "-binary"],
        input=content,
        capture_output=True,
        check=True,
        timeout=10,
    ).stdout
    encoded = subprocess.run(
        ["openssl", "base64", "-A"], input=digest, capture_output=True, check=True, timeout=10
    )
    return encoded.stdout.decode()


def test_the_signature_of_rocketmqs_own_test():
    assert signature_of({"a": "Rocket"}, b"MQ", "12345678") == "IUc8rrO/0gDch8CjObLQsW2rsiA="


def test_a_signature_is_what_openssl_computes_over_values_by_name_and_the_body():
    fields = {"topic": "T", "b": "2", "AccessKey": "rocketmq", "Signature": "ignored"}
    assert signature_of(fields, b"body", "12345678") == by_openssl(b"rocketmq2Tbody", "12345678")


def test_names_are_ordered_as_java_orders_them():
    """By UTF-16 units: a character beyond the first plane comes before U+FFFD."""
    fields = {"\ufffd": "last", "\U0001f600": "first"}
    assert signature_of(fields, b"", "12345678") == by_openssl(b"firstlast", "12345678")


def test_signing_adds_what_the_broker_checks():
    command = RemotingCommand(code=310, ext_fields={"b": "T"}, body=b"x")
    Signer("account1", "secret12", "token").sign(command)
    assert command.ext_fields[ACCESS_KEY_FIELD] == "account1"
    assert command.ext_fields[SIGNATURE_FIELD] == signature_of(
        {"b": "T", "AccessKey": "account1", "SecurityToken": "token"}, b"x", "secret12"
    )
    assert "secret12" not in repr(Signer("account1", "secret12"))


def test_text_that_is_not_utf_8_can_t_be_signed():
    command = RemotingCommand(code=310, ext_fields={"b": "\udcff"})
    with pytest.raises(UnencodableError, match="command 310 holds text that is not UTF-8"):
        Signer("account1", "secret12").sign(command)


@given(st.dictionaries(TEXTS, TEXTS, max_size=6), st.binary(max_size=30), TEXTS)
def test_signing_twice_signs_the_same(fields, body, secret):
    command = RemotingCommand(code=1, ext_fields=dict(fields), body=body)
    signer = Signer("account1", secret)
    signer.sign(command)
    first = command.ext_fields[SIGNATURE_FIELD]
    signer.sign(command)
    assert command.ext_fields[SIGNATURE_FIELD] == first


@pytest.mark.parametrize("other", ["", "a", "é", "\ud800", "A" * 28])
def test_comparing_takes_any_text(other):
    signature = signature_of({}, b"", "12345678")
    assert not signatures_equal(other, signature)
    assert signatures_equal(signature, signature)
