"""Key-value configuration by namespace, as administrators store it on name servers. Pure.

Place in the data path: PUT/GET/DELETE_KV_CONFIG and GET_KVLIST_BY_NAMESPACE; the namespace
ORDER_TOPIC_CONFIG goes to brokers with each registration and into routes.

Invariant: at most `entries_max` entries, names and values of bounded size. `namesrv.kv_file` stores
them where a file is configured; otherwise a restart loses them.

Source: RocketMQ KVConfigManager.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ORDER_TOPIC_CONFIG", "KvConfig", "KvLimitError"]

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
_NAME_SIZE_MAX: Final = 255
_VALUE_SIZE_MAX: Final = 65_536


class KvLimitError(Exception):
    """The entry was refused; the text names the limit."""


class KvConfig:
    """All namespaces of one name server."""

    def __init__(self, entries_max: int = 10_000) -> None:
        self._entries_max = entries_max
        self._count = 0
        self._namespaces: dict[str, dict[str, str]] = {}

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set an entry. Raises KvLimitError."""
        if len(namespace) > _NAME_SIZE_MAX or len(key) > _NAME_SIZE_MAX:
            raise KvLimitError(f"namespace or key of more than {_NAME_SIZE_MAX} characters")
        if len(value) > _VALUE_SIZE_MAX:
            raise KvLimitError(f"value of more than {_VALUE_SIZE_MAX} characters")
        is_new = self.get(namespace, key) is None
        if is_new and self._count >= self._entries_max:
            raise KvLimitError(f"{self._entries_max} entries are kept already")
        self._namespaces.setdefault(namespace, {})[key] = value
        self._count += is_new

    def get(self, namespace: str, key: str) -> str | None:
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Delete an entry; a missing one is no error."""
        entries = self._namespaces.get(namespace, {})
        if entries.pop(key, None) is not None:
            self._count -= 1
            if not entries:
                del self._namespaces[namespace]

    def tables(self) -> dict[str, dict[str, str]]:
        """Return all entries, by namespace and key."""
        return {name: dict(entries) for name, entries in self._namespaces.items()}

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all entries of a namespace, None where it has none."""
        entries = self._namespaces.get(namespace)
        return None if entries is None else dict(entries)
