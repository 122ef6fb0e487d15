"""What people read of the checks is what the catalogue holds."""

from __future__ import annotations

import re
from pathlib import Path

from verify.catalogue import CHECKS
from verify.report.wording import CHECK_MEANINGS
from verify.verdict import PROMISES

README = Path(__file__).parents[2] / "README.md"


def test_readme_names_the_checks_of_each_promise() -> None:
    rows = re.findall(r"^\| (G\d) [^|]*\| ([^|]+?) \|$", README.read_text(encoding="utf-8"), re.M)
    told = {promise: checks.split(", ") for promise, checks in rows}
    held = {
        promise: [check.id for check in CHECKS if check.promise == promise] for promise in PROMISES
    }
    assert told == held


def test_every_check_is_explained() -> None:
    assert {check.id for check in CHECKS} <= set(CHECK_MEANINGS)


def test_every_check_stands_once_and_beside_its_family() -> None:
    """Families are run as one job each: one that is torn apart would be run twice."""
    ids = [check.id for check in CHECKS]
    assert len(set(ids)) == len(ids)
    families = [name[0] for name in ids]
    assert families == sorted(families, key=families.index)
