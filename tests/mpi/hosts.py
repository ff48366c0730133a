"""Hosts for ranks: network namespaces of one machine, each with an address and a name of its own; or, where these
are not allowed, the machine itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time

from harness import HANG, ROOT, patience, wait_until

# Open MPI's, for tests alone: containers run as root, and have fewer cores than ranks.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_btl_base_warn_component_unused": "0",
}
PROGRAMS = (str(ROOT / "yalm"), str(ROOT / "build/emulated/yalm"))
AGENT = """#!/bin/sh
# What mpirun calls instead of ssh: HOST COMMAND…
host=$1
shift
exec ip netns exec "{prefix}${{host##*.}}" unshare -u sh -c "hostname {prefix}${{host##*.}}; $*"
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def why_no_namespaces():
    """Nothing where this process may make network namespaces; else the reason."""
    if os.geteuid() != 0:
        return "not root"
    if not all(shutil.which(tool) for tool in ("ip", "tc", "unshare")):
        return "no ip, tc or unshare"
    name = f"yalm-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True)
    if made.returncode != 0:
        return made.stderr.strip()
    links = ["ip", "-n", name, "link", "add", "name", "a", "type"]
    kinds = (("bridge",), ("veth", "peer", "name", "b"))
    tried = [subprocess.run([*links, *kind], check=False, capture_output=True, text=True) for kind in kinds[:1]]
    ip("netns", "del", name)
    return "; ".join(t.stderr.strip() for t in tried if t.returncode != 0)


class Hosts:
    """n namespaces, and a switch in one more."""

    def __init__(self, n, folder):
        self.n, self.prefix = n, f"yalm{os.getpid()}-"
        self.switch = self.prefix + "switch"
        self.agent = folder / "agent.sh"
        self.agent.write_text(AGENT.format(prefix=self.prefix), encoding="utf-8")
        self.agent.chmod(0o755)

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.remove)
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "name", "br", "type", "bridge")
            ip("-n", self.switch, "link", "set", "dev", "br", "up")
            for host in range(1, self.n + 1):
                self.add(host)
            undo.pop_all()
        return self

    def add(self, host):
        name, port = f"{self.prefix}{host}", f"port{host}"
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self.switch)
        ip("-n", self.switch, "link", "set", "dev", port, "master", "br", "up")
        ip("-n", name, "addr", "add", f"10.77.0.{host}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "dev", "lo", "up")
        ip("-n", name, "link", "set", "dev", "eth0", "up")

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        for name in [f"{self.prefix}{host}" for host in range(1, self.n + 1)] + [self.switch]:
            left = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True).stdout
            for process in map(int, left.split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def cut(self, host):
        """Takes the host off the network."""
        ip("-n", self.prefix + str(host), "link", "set", "dev", "eth0", "down")

    def join(self, host):
        ip("-n", self.prefix + str(host), "link", "set", "dev", "eth0", "up")

    def inside(self, host):
        """What a command begins with that runs there."""
        return ["ip", "netns", "exec", f"{self.prefix}{host}"]

    def mpirun(self, n):
        hosts = ",".join(f"10.77.0.{host}" for host in range(1, n + 1))
        return [
            *self.inside(1),
            *("unshare", "-u", "sh", "-c"),
            f'hostname {self.prefix}1; exec "$@"',
            *("sh", "mpirun", "-n", str(n), "--host", hosts, "--mca", "plm_rsh_agent", str(self.agent)),
            *("--mca", "btl", "tcp,self", "--mca", "oob_tcp_if_include", "10.77.0.0/24"),
            *("--mca", "btl_tcp_if_include", "10.77.0.0/24"),
        ]


class Wired(Hosts):
    """Hosts on a switch whose wires have a delay and a rate (wire.c): not every kernel has tc's netem."""

    def __init__(self, n, folder, delay_us, mbit):
        super().__init__(n, folder)
        self.settings = [str(delay_us), str(mbit)]

    def add(self, host):
        name = f"{self.prefix}{host}"
        ip("netns", "add", name)
        ip("-n", name, "tuntap", "add", "dev", "eth0", "mode", "tap")
        ip("-n", name, "addr", "add", f"10.77.0.{host}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "dev", "lo", "up")
        ip("-n", name, "link", "set", "dev", "eth0", "up")

    def __enter__(self):
        super().__enter__()
        names = [f"{self.prefix}{host}" for host in range(1, self.n + 1)]
        program = ROOT / "build/release/tests/mpi/wire"
        self.wire = subprocess.Popen(
            [program, *self.settings, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.wire.stdout.readline() == "ready\n"
        return self

    def remove(self):
        if hasattr(self, "wire"):
            self.wire.communicate()
        super().remove()


class Here:
    """Ranks as processes side by side."""

    def inside(self, host):
        return []

    def mpirun(self, n):
        return ["mpirun", "-n", str(n)]


def start(hosts, n, *command, **more):
    """n ranks of a command, in a session of their own."""
    return subprocess.Popen(
        [*hosts.mpirun(n), *map(str, command)],
        env={**os.environ, **ENVIRONMENT},
        cwd=ROOT,
        stdin=more.pop("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **more,
    )


def run(hosts, n, *command, text=b"", timeout=HANG):
    """(exit code, standard output, standard error) of n ranks."""
    started = start(hosts, n, *command, stdin=subprocess.PIPE)
    try:
        out, err = started.communicate(text, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        raise
    return started.returncode, out, err.decode(errors="replace")


def ranks_of(model):
    """The process of each rank that has this file in its arguments, by rank."""
    found = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if not entry.isdigit() or os.readlink(f"/proc/{entry}/exe") not in PROGRAMS:
                continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = dict(v.split(b"=", 1) for v in file.read().split(b"\0") if b"=" in v)
            if str(model).encode() in words and b"OMPI_COMM_WORLD_RANK" in variables:
                found[int(variables[b"OMPI_COMM_WORLD_RANK"])] = int(entry)
    return found


def wait_for_ranks(model, n):
    return wait_until(lambda: len(found := ranks_of(model)) >= n and found)


def gone(model, seconds=5):
    """Whether no rank is left after so long."""
    began = time.monotonic()
    while ranks_of(model):
        if time.monotonic() - began > seconds and time.monotonic() - began > patience(seconds):
            return False
        time.sleep(0.05)
    return True
