"""Runs the yalm program as a user does: arguments in, bytes and an exit code out."""

import os
import subprocess

import pytest


class Program:
    """The program, with a model that is put in front of the arguments."""

    def __init__(self, binary, model):
        self.binary, self.model = str(binary), str(model)

    def command(self, *args):
        return [self.binary, self.model, *map(str, args)]

    def __call__(self, *args, stdin=b"", env=None, timeout=100):
        environment = {**os.environ, **(env or {})}
        return subprocess.run(
            self.command(*args), check=False, input=stdin, capture_output=True, timeout=timeout, env=environment
        )

    def ok(self, *args, **more):
        """Standard output of a run that must succeed."""
        done = self(*args, **more)
        assert done.returncode == 0, (args, done.returncode, done.stderr.decode(errors="replace"))
        return done.stdout

    def fails(self, code, *args, **more):
        """The one line that a run says as it fails with `code`; it must write nothing on standard output."""
        done = self(*args, **more)
        text = done.stderr.decode(errors="replace")
        assert done.returncode == code, (args, done.returncode, text)
        assert done.stdout == b"", args
        lines = [line for line in text.splitlines() if line.startswith("yalm: ")]
        assert len(lines) == 1, text
        return lines[0]


@pytest.fixture(scope="session")
def program(yalm, fable):
    return Program(yalm, fable)


@pytest.fixture(scope="session")
def bare(yalm):
    """The program without a model in front."""

    def run(*args, **more):
        return subprocess.run([str(yalm), *map(str, args)], check=False, capture_output=True, timeout=100, **more)

    return run
