"""The runs of a campaign as JUnit's XML, which CI systems show: a suite per system, a case per run.

Place in the data path: `chaos.campaign.campaign` writes it beside index.json. Pure.

A run that failed is a failure, with its checks; one that is unknown is an error, with the reason.

Source: the schema of Jenkins' xUnit plugin.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Final

from chaos.campaign.outcome import RunOutcome

__all__ = ["junit_xml"]

# What XML 1.0 can't have, escaped or not.
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(name: str, runs: Sequence[RunOutcome]) -> str:
    """Return the document."""
    root = ET.Element("testsuites", name=name)
    for place in sorted({run.place for run in runs}):
        inside = [run for run in runs if run.place == place]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=place,
            tests=str(len(inside)),
            failures=str(sum(1 for run in inside if run.verdict == "fail")),
            errors=str(sum(1 for run in inside if run.verdict == "unknown")),
            time=f"{sum(run.took_s for run in inside):.1f}",
        )
        for run in inside:
            _case(suite, run)
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, run: RunOutcome) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"{run.world}.{run.engine}.{run.scenario}",
        name=f"seed {run.seed}",
        time=f"{run.took_s:.1f}",
    )
    if run.verdict == "fail":
        names = ", ".join(f"{check.id} {check.name}" for check in run.failed)
        failure = ET.SubElement(case, "failure", message=_legal(names), type="fail")
        failure.text = _legal(
            "\n".join(
                f"{check.id} {check.name}: {check.violations} violations, the first:"
                f" {json.dumps(check.witness)}"
                for check in run.failed
            )
        )
    elif run.verdict != "pass":
        ET.SubElement(case, "error", message=_legal(run.reason or "unknown"), type="unknown")


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
