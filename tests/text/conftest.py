"""What the tokenizer's Python tests share: a program that encodes many texts at once."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT, VARIANT

sys.path.insert(0, str(Path(__file__).parent))  # tokenizer_file

SPECIAL, MAY_CHANGE = 2, 256  # flags of encode_texts.c


@pytest.fixture(scope="session")
def encoder():
    """Encodes texts with a model file's tokenizer; None for one that does not decode to itself."""
    program = f"build/{VARIANT}/tests/text/encode_texts"
    subprocess.run(["make", "-s", f"VARIANT={VARIANT}", program], cwd=ROOT, check=True)

    def encode(model, texts, special=False, may_change=False):
        # U+2581 is how SentencePiece writes a space: it comes back as one.
        spm = "golden-spm" in model.name
        message = b""
        for text in texts:
            raw = text if isinstance(text, bytes) else text.encode()
            flags = (SPECIAL if special else 0) | (MAY_CHANGE if may_change or (spm and "▁".encode() in raw) else 0)
            message += struct.pack("<II", flags, len(raw)) + raw
        done = subprocess.run([ROOT / program, model], input=message, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        found, at = [], 0
        for _ in texts:
            (n,) = struct.unpack_from("<I", done.stdout, at)
            ids = None if n == 0xFFFFFFFF else list(struct.unpack_from(f"<{n}i", done.stdout, at + 4))
            at += 4 + 4 * len(ids or [])
            found.append(ids)
        assert at == len(done.stdout)
        return found

    return encode
