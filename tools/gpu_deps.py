#!/usr/bin/env python3
"""Copies the C libraries that yalm is built with, and their headers, into one folder, to be carried to a
machine without them. tools/gpu_check.py there finds them.

usage: gpu_deps.py [OUT]                       (build/gpu-deps)
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

LIBRARIES = ["cjson", "pcre2-8", "utf8proc", "xxhash", "cmocka"]
HEADERS = ["cjson/cJSON.h", "pcre2.h", "utf8proc.h", "xxhash.h", "xxh3.h", "cmocka.h"]
FOLDERS = [Path("/usr/include"), Path("/usr/local/include")]


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def copy_library(name, out):
    """As the linker asks for it and as the loader does: two files, since links do not always travel."""
    found = Path(output("cc", f"-print-file-name=lib{name}.so"))
    if not found.is_absolute():
        sys.exit(f"gpu_deps: lib{name}.so: not installed (tools/setup.sh test installs it)")
    soname = re.search(r"SONAME.*\[(.+)\]", output("readelf", "-d", str(found)))
    for target in {found.name, soname[1] if soname else found.name}:
        shutil.copyfile(found.resolve(), out / target)


def copy_header(name, out):
    for folder in FOLDERS:
        if (folder / name).exists():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, out / name)
            return
    sys.exit(f"gpu_deps: {name}: not installed (tools/setup.sh test installs it)")


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "build/gpu-deps")
    for folder in ("lib", "include"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        copy_library(name, out / "lib")
    for name in HEADERS:
        copy_header(name, out / "include")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"gpu_deps: {len(LIBRARIES)} libraries, {size / 1e6:.1f} MB in {out}")


if __name__ == "__main__":
    main()
