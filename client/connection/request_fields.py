"""The header of a request, checked before it is sent.

Place in the data path: requests whose numbers come from the application (offsets, times, counts)
are encoded here. A broker answers a number beyond its field's bits with code 1, which says nothing
about the outcome; here it is named, and nothing is sent.
"""

from __future__ import annotations

from client.errors import UnencodableRequestError
from remoting.errors import HeaderError
from remoting.protocol.headers import Header

__all__ = ["request_fields"]


def request_fields(header: Header) -> dict[str, str]:
    """Encode `header`. Raises UnencodableRequestError where no broker could decode it."""
    fields = header.to_ext_fields()
    try:
        type(header).from_ext_fields(fields)
    except HeaderError as error:
        raise UnencodableRequestError(str(error)) from error
    return fields
