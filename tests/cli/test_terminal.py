"""Files, pipes, full disks, terminals and ^C."""

import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest
from harness import HANG, THOROUGH, patience

PROMPT = "Once upon a time"


def test_missing_files(program, bare, tmp_path):
    assert "No such file" in program.fails(1, "-f", tmp_path / "missing")
    assert "No such file" in program.fails(1, "--tokens", tmp_path / "missing")
    assert "directory" in program.fails(1, "-f", tmp_path).lower()
    done = bare(tmp_path / "missing.bin", "-i", "x")
    assert done.returncode == 1 and b"missing.bin" in done.stderr and done.stdout == b""
    done = bare(tmp_path, "-i", "x")
    assert done.returncode == 3 and str(tmp_path).encode() in done.stderr and done.stdout == b""


def test_a_file_that_is_no_model(bare, tmp_path):
    (tmp_path / "page.bin").write_text("<!DOCTYPE html><html></html>" * 10)
    done = bare(tmp_path / "page.bin", "-i", "x")
    assert done.returncode == 3 and done.stdout == b"" and len(done.stderr.splitlines()) == 1


def test_control_characters_in_names_stay_off_the_terminal(program):
    line = program.fails(1, "-f", "no\033[31m\nfile")
    assert "\033" not in line


FULL = [("-i", PROMPT, "-n", "5"), ("-m", "tokenize", "-i", PROMPT), ("--detokenize", "-i", "1 2613"), ("-m", "info",),
        ("-m", "info", "-o", "json"), ("-m", "verify",), ("--help",), ("--version",), ("-m", "perplexity", "-i", PROMPT),
        ("-m", "passkey", "-n", "1", "--trials", "1", "-s", "1")]  # fmt: skip
if THOROUGH:  # it measures the machine for seconds
    FULL += [("-m", "throughput", "-t", "1", "-p", "4", "-n", "0", "-r", "1", "-o", "json")]


@pytest.mark.parametrize("args", FULL, ids=" ".join)
def test_a_full_disk_is_said(program, args):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(program.command(*args), check=False, stdout=full, stderr=subprocess.PIPE, timeout=HANG)
    assert done.returncode == 1
    assert b"yalm: standard output: No space left on device" in done.stderr


def test_a_closed_stdout_is_said(program):
    command = " ".join(f"'{word}'" for word in program.command("-i", PROMPT, "-n", "5"))
    done = subprocess.run(["sh", "-c", f"{command} >&-"], check=False, stderr=subprocess.PIPE, timeout=HANG)
    assert done.returncode == 1 and b"yalm: standard output: Bad file descriptor" in done.stderr


def test_a_pipe_whose_reader_leaves(program):
    run = subprocess.Popen(
        program.command("-i", PROMPT, "-n", "-1", "--set", "text.ignore_eos=on"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert run.stdout.read(40).startswith(PROMPT.encode())
    run.stdout.close()
    words = run.stderr.read()
    assert run.wait(timeout=HANG) == 1
    assert b"yalm:" not in words
    run.stderr.close()


def test_interrupt_flushes_text_and_statistics(program):
    run = subprocess.Popen(
        program.command("-i", PROMPT, "-n", "-1", "--set", "text.ignore_eos=on"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    begin = run.stdout.read(200)
    run.send_signal(signal.SIGINT)
    text, words = run.communicate(timeout=HANG)
    assert run.returncode == 130
    assert begin.startswith(PROMPT.encode())
    (begin + text).decode()  # whole characters
    assert b"stopped by: interrupt" in words and b"decode: " in words and b"tok/s" in words


def test_interrupt_during_a_long_prefill(program):
    prompt = ("the king and the queen " * 330).encode()
    run = subprocess.Popen(
        program.command("-m", "perplexity", "-f", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    run.stdin.write(prompt * 40)
    run.stdin.close()
    while b"windows of" not in run.stderr.readline():
        pass
    time.sleep(0.2)
    before = time.time()
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=HANG) == 130 and time.time() - before < patience(5)
    assert run.stdout.read() == b""
    run.stdout.close()
    run.stderr.close()


def on_terminal(command, env=None):
    """What a run writes to a terminal on standard error, and its standard output through a pipe."""
    master, slave = pty.openpty()
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=slave, env={**os.environ, "TERM": "xterm", **(env or {})}
    )
    os.close(slave)
    words = b""
    while True:
        ready, _, _ = select.select([master], [], [], 60)
        try:
            piece = os.read(master, 65536) if ready else b""
        except OSError:
            piece = b""
        if not piece:
            break
        words += piece
    text = run.stdout.read()
    run.wait(timeout=HANG)
    os.close(master)
    run.stdout.close()
    return words, text


def test_progress_only_on_a_terminal(program):
    command = program.command("-m", "perplexity", "-i", "The king went to the forest. " * 30, "-T", "32")
    for colour in ("", "1"):
        words, text = on_terminal(command, {"NO_COLOR": colour})
        assert b"\r\033[K" in words and re.search(rb"window \d+ of \d+", words)
    plain, plain_text = on_terminal(command, {"TERM": "dumb"})
    assert b"\033" not in plain and not re.search(rb"\r[^\n]", plain)
    assert text.splitlines()[:2] == plain_text.splitlines()[:2] and b"\033" not in text
    piped = subprocess.run(command, check=False, capture_output=True, timeout=HANG)
    assert b"\033" not in piped.stderr and b"\r" not in piped.stderr


def test_completion_shows_that_it_reads(program):
    command = program.command("-i", "the king " * 400, "-n", "1", "--set", "machine.chunk=64")
    words, text = on_terminal(command)
    assert re.search(rb"\r\033\[Kreading: \d+ of 8\d\d tokens", words) and text.startswith(b"the king the king")
    assert b"reading" not in on_terminal([*command, "-q"])[0]


def test_errors_are_coloured_only_on_a_terminal(program):
    words, _ = on_terminal(program.command("--nonsense"), {"NO_COLOR": ""})
    assert b"\033[1;31myalm:\033[0m" in words
    words, _ = on_terminal(program.command("--nonsense"), {"NO_COLOR": "1"})
    assert words.startswith(b"yalm: unknown option")


def test_more_memory_than_there_is(program):
    line = program.fails(4, "-i", PROMPT, "-n", 5, "-T", 900000000)
    assert "memory" in line


@pytest.mark.parametrize("args", [("-m", "info"), ("-m", "info", "-o", "json"), ("--help",)], ids=" ".join)
def test_a_reader_of_a_few_lines(program, args):
    """`| head` says nothing, whenever in the text it leaves."""
    run = subprocess.Popen(program.command(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    run.stdout.close()
    assert b"yalm:" not in run.stderr.read() and run.wait(timeout=HANG) in (0, 1)
    run.stderr.close()
