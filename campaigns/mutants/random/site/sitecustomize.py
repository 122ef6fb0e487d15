"""Arms this process with the random edit that the environment names, before it imports anything.

Python imports a module of this name by itself where its folder is on PYTHONPATH;
`campaigns.mutants.random.arming` says how. A process that can't be armed ends: an experiment that ran
without its bug would say that nobody saw it.
"""

from __future__ import annotations

import os
import sys
import traceback

_NOT_ARMED = 86

is_armed = False
try:
    from campaigns.mutants.random.arming import arm_this_process

    arm_this_process()
    is_armed = True
finally:
    if not is_armed:  # Python itself would print it and go on, without the bug
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(_NOT_ARMED)
