"""The three basic types of Raft: node name, term and index.

Place in the data path: imported by every module of the package; it imports none.

Source: Raft, figure 2.
"""

from __future__ import annotations

from typing import NewType

__all__ = ["Index", "NodeId", "Term"]

NodeId = NewType("NodeId", str)
Term = int
Index = int
