"""What the Python tests share: the program under test, and the bundled model, converted once for each run.

YALM_VARIANT names the build: release (default), or a sanitizer's."""

from __future__ import annotations

import gc
import struct
import subprocess

import pytest
from harness import BUILD, ROOT, SHARED, VARIANT, built, convert_directory, usable_isas

gc.set_threshold(100_000, 50)  # else Python goes through vocabularies, which are no garbage, again and again

SPECIAL, MAY_CHANGE = 2, 256  # flags of tests/text/encode_texts.c


@pytest.fixture(scope="session")
def yalm():
    """Path of the command line program."""
    return built(ROOT / "yalm" if VARIANT == "release" else BUILD / "yalm")


@pytest.fixture(scope="session")
def isas():
    return usable_isas()


@pytest.fixture(scope="session")
def fable(tmp_path_factory):
    """The bundled model, converted."""
    return convert_directory(ROOT / "models/fable-4m", tmp_path_factory.mktemp("fable") / "fable-4m.bin")


@pytest.fixture(scope="session")
def shared():
    """Real vocabularies and texts that lie beside some checkouts."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not there")
    return SHARED


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
