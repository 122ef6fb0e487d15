"""Users and permissions of RocketMQ 5.x: the requests of this room.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from typing import Final

from broker.request.forwarding import Forwarded
from broker.request.needs import ADMINISTRATOR
from broker.request.row import Row
from remoting.protocol.codes import RequestCode

__all__ = ["ROWS"]

_C: Final = RequestCode


ROWS: Final[tuple[Row, ...]] = (
    Row(
        _C.AUTH_CREATE_USER,
        "users.create",
        fields="username:S*",
        body="UserInfo",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_UPDATE_USER,
        "users.update",
        fields="username:S*",
        body="UserInfo",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_DELETE_USER,
        "users.delete",
        fields="username:S*",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_GET_USER,
        "users.get",
        fields="username:S*",
        body="answer: UserInfo",
        needs=ADMINISTRATOR,
    ),
    Row(
        _C.AUTH_LIST_USER,
        "users.list_all",
        fields="filter:S",
        body="answer: list of UserInfo",
        needs=ADMINISTRATOR,
    ),
    Row(
        _C.AUTH_CREATE_ACL,
        "acl_admin.create",
        fields="subject:S*",
        body="AclInfo",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_UPDATE_ACL,
        "acl_admin.create",
        fields="subject:S*",
        body="AclInfo",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_DELETE_ACL,
        "acl_admin.delete",
        fields="subject:S* policyType:S resource:S",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_GET_ACL,
        "acl_admin.get",
        fields="subject:S*",
        body="answer: AclInfo",
        needs=ADMINISTRATOR,
    ),
    Row(
        _C.AUTH_LIST_ACL,
        "acl_admin.list_all",
        fields="subjectFilter:S resourceFilter:S",
        body="answer: list of AclInfo",
        needs=ADMINISTRATOR,
    ),
)
