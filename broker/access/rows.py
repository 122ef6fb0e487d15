"""Requests about users and permissions of RocketMQ 5.x.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

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


ROWS: Final[tuple[Row, ...]] = (
    Row(
        _C.AUTH_CREATE_USER,
        "users.create",
        header=UserRequestHeader,
        leader=True,
        body="UserInfo",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_UPDATE_USER,
        "users.update",
        header=UserRequestHeader,
        leader=True,
        body="UserInfo",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_DELETE_USER,
        "users.delete",
        header=UserRequestHeader,
        leader=True,
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_GET_USER,
        "users.get",
        header=UserRequestHeader,
        body="answer: UserInfo",
        needs=ADMINISTRATOR,
    ),
    Row(
        _C.AUTH_LIST_USER,
        "users.list_all",
        header=ListUsersRequestHeader,
        body="answer: list of UserInfo",
        needs=ADMINISTRATOR,
    ),
    Row(
        _C.AUTH_CREATE_ACL,
        "acl_admin.create",
        header=AclRequestHeader,
        leader=True,
        body="AclInfo",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_UPDATE_ACL,
        "acl_admin.create",
        header=AclRequestHeader,
        leader=True,
        body="AclInfo",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_DELETE_ACL,
        "acl_admin.delete",
        header=DeleteAclRequestHeader,
        leader=True,
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.AUTH_GET_ACL,
        "acl_admin.get",
        header=AclRequestHeader,
        body="answer: AclInfo",
        needs=ADMINISTRATOR,
    ),
    Row(
        _C.AUTH_LIST_ACL,
        "acl_admin.list_all",
        header=ListAclsRequestHeader,
        body="answer: list of AclInfo",
        needs=ADMINISTRATOR,
    ),
)
