"""Property tests have no deadline per example: a loaded machine is no failure.

Loaded when this directory is collected, before its modules bind their settings.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
