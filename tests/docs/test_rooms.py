"""The rooms of src/: what each may include. All arrows between rooms point one way, down this list."""

import re

import pytest
from harness import ROOT

# From the ground up: a room, and the rooms below it that its files may include. CONTRIBUTING.md says what lives in each.
ROOMS = {
    "yalm.h": (),
    "yalm_measure.h": ("yalm.h",),
    "yalm_group.h": ("yalm.h",),
    "util": ("yalm.h",),
    "model": ("util",),
    "recipe": ("util", "model"),
    "text": ("yalm.h", "util", "model"),
    "chat": ("util", "model"),
    "engine": ("yalm.h", "yalm_measure.h", "yalm_group.h", "util", "model", "recipe", "text", "chat"),
    "cpu/kernels": ("model",),
    "cpu/machine": ("yalm.h", "yalm_measure.h", "util", "cpu/kernels"),
    "cpu": ("yalm.h", "util", "model", "recipe", "engine", "cpu/kernels", "cpu/machine"),
    "cpu/long": ("yalm.h", "util", "model", "engine", "cpu/kernels", "cpu/machine", "cpu"),
    "cuda/kernels": ("util", "model", "engine"),
    "cuda/products": ("cuda/kernels",),
    "cuda/experts": ("cuda/kernels", "cuda/products"),
    "cuda/attention": ("cuda/kernels",),
    "cuda/sample": ("cuda/kernels",),
    "cuda": ("recipe", "cuda/kernels"),
    "cuda/step": ("cuda/kernels", "cuda/attention", "cuda"),
    "cuda/long": ("cuda/kernels", "cuda/attention", "cuda"),
    "mpi": ("util", "engine"),
    "grammar": ("yalm.h", "util"),
    "speculate": ("yalm.h", "util"),
    "speech": ("util",),
    "generate": ("yalm.h", "util", "grammar", "speculate", "speech"),
    "serve": ("yalm.h", "util", "grammar", "speculate", "speech", "generate"),
    "cli": ("yalm.h", "yalm_measure.h", "yalm_group.h", "util", "grammar", "speculate", "speech", "generate", "serve"),
}
SOURCES = sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".c", ".h", ".cu", ".cuh"))


def room_of(path):
    """The deepest room that a path, relative to src/, lies in."""
    if path == "main.c":
        return "cli"
    return max((room for room in ROOMS if path == room or path.startswith(room + "/")), key=len, default=None)


def includes(source):
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', source.read_text(encoding="utf-8"), flags=re.M)


def arrows():
    """(file, what it includes), of different rooms."""
    for source in SOURCES:
        name = str(source.relative_to(ROOT / "src"))
        for included in includes(source):
            if room_of(name) != room_of(included):
                yield name, included


def test_every_file_has_a_room():
    names = [str(source.relative_to(ROOT / "src")) for source in SOURCES]
    assert len(names) > 200 and [name for name in names if not room_of(name)] == []


def test_permissions_point_down():
    order = list(ROOMS)
    upward = [(room, other) for room in ROOMS for other in ROOMS[room] if order.index(other) >= order.index(room)]
    assert upward == []


@pytest.mark.parametrize("room", ROOMS)
def test_room_includes_what_it_may(room):
    found = [(name, included) for name, included in arrows() if room_of(name) == room]
    assert [arrow for arrow in found if room_of(arrow[1]) not in ROOMS[room]] == []
    assert set(ROOMS[room]) <= {room_of(included) for _, included in found}, "a permission that nobody uses"


def test_includes_are_written_from_src():
    broken = [(source.name, included) for source in SOURCES for included in includes(source)]
    assert [arrow for arrow in broken if not (ROOT / "src" / arrow[1]).exists()] == []


def test_only_kernels_name_instructions():
    users = [
        str(source.relative_to(ROOT / "src"))
        for source in SOURCES
        if re.search("<(immintrin|arm_neon).h>", source.read_text("utf-8"))
    ]
    assert users and [name for name in users if room_of(name) != "cpu/kernels"] == []
