"""Requests about users and permissions of RocketMQ 5.x.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.request.forwarding import Forwarded
from broker.request.needs import ADMINISTRATOR
from broker.request.row import Row
from remoting.protocol.codes import RequestCode
from remoting.protocol.headers import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)

__all__ = ["ROWS"]

_C: Final = RequestCode


_change = partial(Row, leader=True, needs=ADMINISTRATOR, forwarded=Forwarded.FOR_OTHERS)

_query = partial(Row, needs=ADMINISTRATOR)

ROWS: Final[tuple[Row, ...]] = (
    _change(_C.AUTH_CREATE_USER, "users.create", header=UserRequestHeader, body="UserInfo"),
    _change(_C.AUTH_UPDATE_USER, "users.update", header=UserRequestHeader, body="UserInfo"),
    _change(_C.AUTH_DELETE_USER, "users.delete", header=UserRequestHeader),
    _query(_C.AUTH_GET_USER, "users.get", header=UserRequestHeader, body="answer: UserInfo"),
    _query(
        _C.AUTH_LIST_USER,
        "users.list_all",
        header=ListUsersRequestHeader,
        body="answer: list of UserInfo",
    ),
    _change(_C.AUTH_CREATE_ACL, "acl_admin.create", header=AclRequestHeader, body="AclInfo"),
    _change(_C.AUTH_UPDATE_ACL, "acl_admin.create", header=AclRequestHeader, body="AclInfo"),
    _change(_C.AUTH_DELETE_ACL, "acl_admin.delete", header=DeleteAclRequestHeader),
    _query(_C.AUTH_GET_ACL, "acl_admin.get", header=AclRequestHeader, body="answer: AclInfo"),
    _query(
        _C.AUTH_LIST_ACL,
        "acl_admin.list_all",
        header=ListAclsRequestHeader,
        body="answer: list of AclInfo",
    ),
)
