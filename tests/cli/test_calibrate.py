"""Mode calibrate: the file of codebooks, and what becomes of it when something goes wrong."""

import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest
from harness import HANG

HELDOUT = Path(__file__).resolve().parents[2] / "models" / "fable-4m" / "heldout.txt"
BYTES = 64 + 4 * 2 * 64 * 16 * 4  # layers, KV heads, head_dim, centroids, float32


def test_writes_codebooks(program, tmp_path):
    book = tmp_path / "a.nomad"
    text = program.ok(
        "-m", "calibrate", "-f", HELDOUT, "-o", book, "--set", "calibrate.samples=600", "--ctx", "256"
    ).decode()
    assert text.startswith(f"{book}: 4 layers, 2 KV heads, 64 x 1 components of 4 bits; learned from 600 keys of each")
    data = book.read_bytes()
    assert len(data) == BYTES and data[:4] == b"NMAD"
    assert struct.unpack_from("<6I", data, 40) == (4, 2, 64, 1, 2048, 600)
    assert [path.name for path in tmp_path.iterdir()] == ["a.nomad"]


def test_same_on_any_number_of_threads(program, tmp_path):
    made = []
    for threads in (1, 3):
        book = tmp_path / f"{threads}.nomad"
        program.ok(
            "-m",
            "ca",
            "-f",
            HELDOUT,
            "-o",
            book,
            "--set",
            "calibrate.samples=300",
            "--set",
            "calibrate.d_sub=2",
            "--threads",
            threads,
        )
        made.append(book.read_bytes())
    assert made[0] == made[1]
    other = tmp_path / "seed.nomad"
    program.ok(
        "-m",
        "ca",
        "-f",
        HELDOUT,
        "-o",
        other,
        "--set",
        "calibrate.samples=300",
        "--set",
        "calibrate.d_sub=2",
        "--seed",
        "5",
    )
    assert other.read_bytes() != made[0]


@pytest.mark.parametrize(
    "args, code, message",
    [
        (("-i", "too short"), 2, "the calibration text: found"),
        (("-i", "x", "--set", "calibrate.d_sub=3"), 2, "d_sub: found 3, expected 1, 2 or 4"),
        (("-i", "x", "--set", "calibrate.samples=15"), 2, "option 'calibrate.samples': expected an integer from 16"),
        (("-i", "x", "--max-tokens", "5"), 2, "option '--max-tokens' does not belong to mode calibrate"),
        ((), 2, "mode calibrate needs input"),
        (("-f", HELDOUT, "-o", "/nonexistent/a.nomad"), 1, "/nonexistent/a.nomad: No such file or directory"),
        (("-f", HELDOUT, "-o", "/dev/null"), 1, "/dev/null: not a regular file"),
        (
            ("-f", HELDOUT, "-o", "/tmp/no.nomad", "--set", "calibrate.samples=16000000", "--ctx", "1"),
            2,
            "context: found 1",
        ),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_refusals(program, args, code, message):
    assert message in program.fails(code, "-m", "calibrate", *args)


def test_replaces_codebooks_but_no_other_file(program, tmp_path):
    """Above all not the model, whose name may end in .nomad, nor the text."""
    model, text = tmp_path / "m.nomad", tmp_path / "text"
    model.write_bytes(Path(program.model).read_bytes())
    text.write_bytes(HELDOUT.read_bytes()[:20000])
    its_own = type(program)(program.binary, model)
    for more in ((), ("-o", model), ("-o", text)):
        assert "holds no codebooks; it is not replaced" in its_own.fails(1, "-m", "calibrate", "-f", text, *more)
    assert model.read_bytes() == Path(program.model).read_bytes() and text.stat().st_size == 20000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.nomad", "text"]

    book = tmp_path / "book"
    book.touch()
    for seed in (1, 2):
        before = book.read_bytes()
        its_own.ok("-m", "calibrate", "-f", text, "-o", book, "--set", "calibrate.samples=300", "--seed", seed)
        assert len(book.read_bytes()) == BYTES and book.read_bytes() != before


def test_interrupted_leaves_no_file(program, tmp_path):
    book = tmp_path / "a.nomad"
    command = program.command(
        "-m", "calibrate", "-f", HELDOUT, "-o", book, "--set", "calibrate.samples=100000", "--threads", "1"
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        for _ in range(2000):  # until it writes to its temporary file, and a little further
            if list(tmp_path.iterdir()):
                break
            time.sleep(0.01)
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=HANG)
    assert running.returncode == 130 and out == b""
    assert list(tmp_path.iterdir()) == []
