"""A terminal that a test types at."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from harness import HANG


class Terminal:
    """A run whose standard files are a terminal."""

    def __init__(self, program, *args, env=None, bare=False, columns=80):
        self.master, slave = pty.openpty()
        self.resize(columns)
        environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": "", **(env or {})}

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        command = [program.binary, *map(str, args)] if bare else program.command("-m", "chat", *args)
        self.run = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, preexec_fn=own_terminal
        )
        os.close(slave)
        self.seen = ""

    def until(self, pattern, timeout=HANG):
        """Reads until the text since the last call matches; returns it."""
        end = time.time() + timeout
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.time()))
            try:
                piece = os.read(self.master, 65536) if ready else b""
            except OSError:
                piece = b""
            assert piece, f"waited for {pattern!r}, found {self.seen!r}"
            self.seen = re.sub(r"\x1b\[\?2004[hl]", "", self.seen + piece.decode(errors="replace"))
        text, self.seen = self.seen, ""
        return text

    def resize(self, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def ends(self, code):
        rest = b""
        try:
            while self.run.poll() is None or select.select([self.master], [], [], 0)[0]:
                if select.select([self.master], [], [], 0.1)[0]:
                    rest += os.read(self.master, 65536)
        except OSError:
            pass
        assert self.run.wait(timeout=HANG) == code, rest.decode(errors="replace")
        os.close(self.master)
