"""What matches texts against a grammar or a schema: tests/grammar/match.c."""

from __future__ import annotations

import json
import subprocess

import pytest
from harness import BUILD, HANG, built


@pytest.fixture(scope="module")
def match(tmp_path_factory):
    program, folder = built(BUILD / "tests/grammar/match"), tmp_path_factory.mktemp("grammars")

    def run(kind, grammar, texts=(), model=None):
        path = folder / "grammar"
        path.write_text(grammar if isinstance(grammar, str) else json.dumps(grammar))
        command = [str(program), kind, str(path), *([str(model)] if model else [])]
        done = subprocess.run(
            command, input="".join(text + "\0" for text in texts), capture_output=True, text=True, timeout=HANG
        )
        assert done.returncode in (0, 2), done.stderr
        return done.stdout.splitlines() if done.returncode == 0 else done.stdout.strip()

    return run
