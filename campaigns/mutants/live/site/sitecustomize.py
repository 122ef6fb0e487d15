"""Arms this process with the planted bugs that the environment names, before it imports anything.

Python imports a module of this name by itself where its folder is on PYTHONPATH. Who arms is
`campaigns.mutants.live.planting`, or the module that MUTANTS_ARMED_BY names. A process that can't be armed ends: an experiment that ran
without its bug would say that nobody saw it.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module

_NOT_ARMED = 86

is_armed = False
try:
    armed_by = os.environ.get("MUTANTS_ARMED_BY", "campaigns.mutants.live.planting")
    import_module(armed_by).arm_this_process()
    is_armed = True
finally:
    if not is_armed:  # Python itself would print it and go on, without the bug
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(_NOT_ARMED)
