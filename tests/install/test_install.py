"""`make install`: what it leaves, that the example compiles and runs against it alone, and that `make uninstall`
takes all away."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from harness import ROOT

HEADERS = ("yalm.h", "yalm_measure.h", "yalm_group.h")
EXAMPLE = ROOT / "examples/complete.c"


def sh(*command, **more):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, cwd=ROOT, **more
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def make(*arguments):
    # Not a part of the make that runs the tests: its flags are its own.
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return sh("make", "-s", *arguments, env=environment)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    make("install", f"PREFIX={folder}")
    return folder


def pkg_config(prefix, *options):
    return sh("pkg-config", *options, "yalm", env={**os.environ, "PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}).split()


def complete(program, model, **environment):
    return sh(program, model, "Once upon a time", 12, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def expected(yalm, fable):
    return sh(yalm, fable, "-i", "Once upon a time", "-n", 12, "--temp", 0, "-q").rstrip("\n") + "\n"


def test_example_with_the_shared_library(prefix, fable, expected, tmp_path):
    flags = pkg_config(prefix, "--cflags", "--libs")
    sh("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / "complete", EXAMPLE, *flags)
    assert "[libyalm.so.0.2]" in sh("readelf", "-d", tmp_path / "complete")
    assert complete(tmp_path / "complete", fable, LD_LIBRARY_PATH=f"{prefix}/lib") == expected


def test_example_with_the_static_library(prefix, fable, expected, tmp_path):
    flags = pkg_config(prefix, "--static", "--cflags", "--libs")
    flags = [f"{prefix}/lib/libyalm.a" if flag == "-lyalm" else flag for flag in flags]
    sh("cc", "-std=c11", "-o", tmp_path / "complete", EXAMPLE, *flags)
    assert "libyalm" not in sh("readelf", "-d", tmp_path / "complete")
    assert complete(tmp_path / "complete", fable) == expected


def test_example_of_generating(prefix, yalm, fable, tmp_path):
    source = ROOT / "examples/generate.c"
    assert len(source.read_text().splitlines()) <= 30
    flags = pkg_config(prefix, "--cflags", "--libs")
    sh("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / "generate", source, *flags)
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{prefix}/lib"}
    expected = sh(yalm, fable, "-i", "Once upon a time", "-n", -2, "--seed", 0, "-q", "--no-echo")
    assert sh(tmp_path / "generate", fable, "Once upon a time", env=environment).rstrip("\n") == expected.rstrip("\n")
    assert "usage" in subprocess.run([tmp_path / "generate"], capture_output=True, text=True, env=environment).stderr


def test_header_is_c_plus_plus_too(prefix, tmp_path):
    source = tmp_path / "header.cc"
    included = "".join(f"#include <{name}>\n" for name in reversed(HEADERS))
    source.write_text(f"{included}{included}int main() {{ return yalm_version() == nullptr; }}\n")
    compiler = next(
        (name for name in ("g++", "clang++") if subprocess.run(["which", name], capture_output=True).returncode == 0),
        None,
    )
    if compiler is None:
        pytest.skip("no C++ compiler here")
    sh(compiler, "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *pkg_config(prefix, "--cflags"), source)


def test_only_the_public_interface_is_exported(prefix):
    lines = sh("nm", "-D", "--defined-only", f"{prefix}/lib/libyalm.so").splitlines()
    names = {line.split()[-1] for line in lines}
    assert names and all(name.startswith("yalm_") for name in names), names
    lines = [line for name in HEADERS for line in (ROOT / "src" / name).read_text(encoding="utf-8").splitlines()]
    declared = {line.split("(")[0].split()[-1].lstrip("*") for line in lines if line.startswith("YALM_API")}
    assert names == declared


def test_version_of_the_header(prefix):
    header = (prefix / "include/yalm.h").read_text(encoding="utf-8")
    numbers = re.findall(r"^#define YALM_VERSION_(MAJOR|MINOR|PATCH) (\d+)$", header, flags=re.M)
    assert [name for name, _ in numbers] == ["MAJOR", "MINOR", "PATCH"]
    version = re.search(r"^VERSION +:= (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M)[1]
    assert ".".join(number for _, number in numbers) == version
    native = (ROOT / "tools/yalm_convert/native.py").read_text(encoding="utf-8")
    assert f'ABI = "{version.rpartition(".")[0]}"' in native
    assert (
        sh(
            "pkg-config", "--modversion", "yalm", env={**os.environ, "PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}
        ).strip()
        == version
    )


def test_no_global_state(prefix):
    """Nothing that could be written: no variables but constants, whose addresses the loader fills in."""
    symbols = sh("objdump", "-t", prefix / "lib/libyalm.a").splitlines()
    writable = [line for line in symbols if re.search(r" O \.(bss|data|tbss|tdata)\b(?!\.rel\.ro)", line)]
    assert len(symbols) > 1000 and writable == []


def test_installed_program_and_converter(prefix, expected, tmp_path):
    python = os.sys.executable
    code = "from yalm_convert.native import library; assert library() is not None"
    sh(python, "-c", code, env={**os.environ, "PYTHONPATH": str(prefix / "share/yalm")})
    sh(python, prefix / "share/yalm/convert.py", ROOT / "models/fable-4m", tmp_path / "model.bin")
    assert (
        sh(prefix / "bin/yalm", tmp_path / "model.bin", "-i", "Once upon a time", "-n", 12, "--temp", 0, "-q") + "\n"
        == expected
    )


def test_destdir_and_uninstall(tmp_path):
    make("install", "PREFIX=/opt/yalm", f"DESTDIR={tmp_path}")
    there = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    wanted = {
        "bin/yalm",
        *(f"include/{name}" for name in HEADERS),
        "lib/libyalm.a",
        "lib/libyalm.so",
        "lib/pkgconfig/yalm.pc",
        "share/man/man1/yalm.1",
        "share/yalm/convert.py",
    }
    assert {f"opt/yalm/{name}" for name in wanted} <= there
    assert "prefix=/opt/yalm\n" in (tmp_path / "opt/yalm/lib/pkgconfig/yalm.pc").read_text()
    make("uninstall", "PREFIX=/opt/yalm", f"DESTDIR={tmp_path}")
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
