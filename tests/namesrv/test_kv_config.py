"""Key-value configuration and its bounds."""

from __future__ import annotations

import pytest

from namesrv.kv_config import KvConfig, KvLimitError


def test_put_get_delete() -> None:
    kv = KvConfig()
    assert kv.get("n", "k") is None
    assert kv.namespace("n") is None
    kv.put("n", "k", "v")
    kv.put("n", "k", "w")
    kv.put("m", "k", "x")
    assert kv.get("n", "k") == "w"
    assert kv.namespace("n") == {"k": "w"}
    kv.delete("n", "k")
    kv.delete("n", "k")
    kv.delete("never", "k")
    assert kv.namespace("n") is None
    assert kv.get("m", "k") == "x"


def test_bounds() -> None:
    kv = KvConfig(entries_max=2)
    kv.put("n", "a", "")
    kv.put("m", "b", "")
    with pytest.raises(KvLimitError, match="2 entries"):
        kv.put("n", "c", "")
    kv.put("n", "a", "again")
    kv.delete("m", "b")
    kv.put("n", "c", "")
    kv.delete("n", "c")  # its namespace has another entry
    kv.put("n", "d", "")
    with pytest.raises(KvLimitError, match="255 characters"):
        kv.put("n", "k" * 256, "")
    with pytest.raises(KvLimitError, match="255 characters"):
        kv.put("n" * 256, "k", "")
    with pytest.raises(KvLimitError, match="65536 characters"):
        kv.put("n", "a", "v" * 65_537)
