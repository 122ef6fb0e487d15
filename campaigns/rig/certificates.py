"""Certificates for tests, made with openssl: an authority, and what it signed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    cert: Path
    key: Path


class Authority:
    """One certificate authority in a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self.own = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", self.own.key, "-out", self.own.cert, "-days", "30", "-subj", f"/CN={name}",
        )  # fmt: skip

    def issue(self, name: str, *, expired: bool = False) -> Certificate:
        made = Certificate(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        request = self.directory / f"{name}.csr"
        _openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", made.key, "-out", request, "-subj", f"/CN={name}",
        )  # fmt: skip
        if expired:
            self._issue_expired(request, made)
        else:
            _openssl(
                "x509", "-req", "-in", request, "-CA", self.own.cert, "-CAkey", self.own.key,
                "-CAcreateserial", "-out", made.cert, "-days", "10",
            )  # fmt: skip
        return made

    def _issue_expired(self, request: Path, made: Certificate) -> None:
        """Only `openssl ca` takes both dates, and it keeps books."""
        (self.directory / "index.txt").touch()
        settings = self.directory / "ca.cnf"
        settings.write_text(
            "[ca]\ndefault_ca = d\n[d]\ndatabase = index.txt\nnew_certs_dir = .\n"
            "rand_serial = yes\nunique_subject = no\ndefault_md = sha256\npolicy = p\n"
            "[p]\ncommonName = supplied\n"
        )
        _openssl(
            "ca", "-batch", "-notext", "-config", settings, "-in", request,
            "-cert", self.own.cert, "-keyfile", self.own.key, "-out", made.cert,
            "-startdate", "20200101000000Z", "-enddate", "20200201000000Z",
            cwd=self.directory,
        )  # fmt: skip


def _openssl(*arguments: str | Path, cwd: Path | None = None) -> None:
    subprocess.run(
        ["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=20, cwd=cwd
    )
