"""plain_acl.yml: white lists, accounts and their permissions. Pure: text in, table out.

Place in the data path: `broker.access.access_control` reads the file and queries the table.

Invariants: every value is the text written in the file (a secret of digits keeps its leading
zeros); an error names the key and never quotes a secret; sizes are bounded.

Source: RocketMQ PlainPermissionManager, Permission, PlainAccessConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from broker.access.addresses import AddressPattern, AddressPatternError
from broker.entry.permission import Permission
from broker.entry.topics import RETRY_PREFIX

__all__ = ["ACL_FILE_SIZE_MAX", "Account", "AclFileError", "AclTable", "parse_table"]

ACL_FILE_SIZE_MAX: Final = 1 << 20
_ACCOUNTS_MAX: Final = 10_000
_ENTRIES_MAX: Final = 100_000
_KEY_SIZE_MIN: Final = 7
_TOP_KEYS: Final = frozenset({"globalWhiteRemoteAddresses", "accounts", "dataVersion"})
_ACCOUNT_KEYS: Final = frozenset(
    {
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    }
)


_PERMISSIONS: Final = {
    "DENY": Permission.NONE,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}


class AclFileError(ValueError):
    """Error in the file; names the key and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Account of the file; `permissions` maps a topic's name, or a group's retry topic."""

    access_key: str
    secret: str = field(repr=False)
    white_addresses: AddressPattern
    admin: bool
    default_topic: Permission
    default_group: Permission
    permissions: Mapping[str, Permission]

    def may(self, resource: str, needed: Permission) -> bool:
        """Whether the account has `needed` on a topic or retry topic.

        An administrator to whom the file grants nothing by name has every permission.
        """
        if self.admin and not self.permissions:
            return True
        owned = self.permissions.get(resource)
        if owned is None:
            is_group = resource.startswith(RETRY_PREFIX)
            owned = self.default_group if is_group else self.default_topic
        return bool(owned & needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclTable:
    """Content of the file; `unknown_keys` are logged as warnings."""

    white_addresses: tuple[AddressPattern, ...]
    accounts: Mapping[str, Account]
    unknown_keys: tuple[str, ...] = ()

    def is_white(self, ip: str) -> bool:
        return any(pattern.matches(ip) for pattern in self.white_addresses)


def parse_table(text: str) -> AclTable:
    """Return the table in the text of a file. Raises AclFileError."""
    if len(text) > ACL_FILE_SIZE_MAX:
        raise AclFileError(f"more than {ACL_FILE_SIZE_MAX} characters")
    try:
        # BaseLoader makes lists, maps and texts and nothing else.
        document = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506
    except (yaml.YAMLError, RecursionError) as error:
        raise AclFileError(f"not YAML: {_place_of(error)}") from None
    if document in (None, ""):
        document = {}
    if not isinstance(document, dict):
        raise AclFileError("must be a map of keys at its top")
    white = _texts("globalWhiteRemoteAddresses", document.get("globalWhiteRemoteAddresses"))
    unknown = [str(key) for key in document if key not in _TOP_KEYS]
    accounts: dict[str, Account] = {}
    listed = document.get("accounts") or []
    if not isinstance(listed, list) or len(listed) > _ACCOUNTS_MAX:
        raise AclFileError(f"accounts: must be a list of at most {_ACCOUNTS_MAX}")
    entries = 0
    for at, values in enumerate(listed):
        if not isinstance(values, dict):
            raise AclFileError(f"accounts[{at}]: must be a map")
        account = _account(f"accounts[{at}]", values)
        entries += len(account.permissions)
        if entries > _ENTRIES_MAX:
            raise AclFileError(f"more than {_ENTRIES_MAX} permissions")
        if account.access_key in accounts:
            raise AclFileError(f"accounts[{at}]: accessKey {account.access_key!r} occurs twice")
        accounts[account.access_key] = account
        unknown += [f"accounts[{at}].{key}" for key in values if key not in _ACCOUNT_KEYS]
    return AclTable(
        white_addresses=tuple(
            _pattern(f"globalWhiteRemoteAddresses[{at}]", address)
            for at, address in enumerate(white)
        ),
        accounts=accounts,
        unknown_keys=tuple(unknown),
    )


def _account(where: str, values: dict[str, Any]) -> Account:
    access_key = _text(f"{where}.accessKey", values.get("accessKey"))
    secret = _text(f"{where}.secretKey", values.get("secretKey"))
    for name, value in (("accessKey", access_key), ("secretKey", secret)):
        if len(value) < _KEY_SIZE_MIN:
            raise AclFileError(f"{where}.{name}: must have at least {_KEY_SIZE_MIN} characters")
    admin = _text(f"{where}.admin", values.get("admin")).strip().lower()
    if admin not in {"", "true", "false"}:
        raise AclFileError(f"{where}.admin: {admin[:40]!r} is not true or false")
    permissions: dict[str, Permission] = {}
    for key, prefix in (("groupPerms", RETRY_PREFIX), ("topicPerms", "")):
        for entry in _texts(f"{where}.{key}", values.get(key)):
            name, equals, permission = entry.partition("=")
            if not equals or not name.strip():
                raise AclFileError(f"{where}.{key}: {entry[:80]!r} is not name=permission")
            resource = name.strip()
            if not resource.startswith(prefix):
                resource = prefix + resource
            permissions[resource] = _permission(f"{where}.{key}", permission)
    return Account(
        access_key=access_key,
        secret=secret,
        white_addresses=_pattern(
            f"{where}.whiteRemoteAddress",
            _text(f"{where}.whiteRemoteAddress", values.get("whiteRemoteAddress")),
        ),
        admin=admin == "true",
        default_topic=_default(f"{where}.defaultTopicPerm", values.get("defaultTopicPerm")),
        default_group=_default(f"{where}.defaultGroupPerm", values.get("defaultGroupPerm")),
        permissions=permissions,
    )


def _default(where: str, value: object) -> Permission:
    text = _text(where, value)
    return _permission(where, text) if text else Permission.NONE


def _permission(where: str, text: str) -> Permission:
    permission = _PERMISSIONS.get(text.strip())
    if permission is None:
        raise AclFileError(
            f"{where}: {text.strip()[:40]!r} is not one of {', '.join(_PERMISSIONS)}"
        )
    return permission


def _pattern(where: str, text: str) -> AddressPattern:
    try:
        return AddressPattern.of(text)
    except AddressPatternError as error:
        raise AclFileError(f"{where}: {error}") from error


def _text(where: str, value: object) -> str:
    """Return a scalar's text, "" for an absent one. Raises AclFileError."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise AclFileError(f"{where}: must be one value")
    return value


def _texts(where: str, value: object) -> list[str]:
    if value in (None, ""):
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise AclFileError(f"{where}: must be a list of values")
    return value


def _place_of(error: Exception) -> str:
    """Return what is wrong in which line, without quoting it: it may contain a secret."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    return str(problem) if mark is None else f"{problem} in line {mark.line + 1}"
