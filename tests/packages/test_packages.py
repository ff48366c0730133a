"""The packages that `make packages` has built, each in a root where nothing else of yalm's is: `make test-packages`."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from harness import HANG, ROOT

PACKED = ROOT / "build/packages"
BUNDLED = ROOT / "models/fable-4m"
ASK = ("-i", "Once upon a time", "-n", "12", "--temp", "0", "-q", "--no-echo")
pytestmark = pytest.mark.skipif("YALM_PACKAGES" not in os.environ, reason="`make test-packages` builds packages first")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a root of its own needs the rights of root")
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}  # nothing that would lead back to the source


def one(pattern):
    (found,) = PACKED.glob(pattern)
    return found


def run(*command, **more):
    done = subprocess.run(
        [str(word) for word in command],
        **{"capture_output": True, "text": True, "timeout": 2 * HANG, "env": ENVIRONMENT, **more},
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel") / "venv"
    run(sys.executable, "-m", "venv", folder)
    pip = [folder / "bin/pip", "install", "-q", "--disable-pip-version-check", one("*.whl")]
    run(*pip, env={**os.environ, "PIP_NO_INPUT": "1"})
    return folder


def test_the_wheels_program(venv, sentence, tmp_path):
    """On PATH, with its converter and that one's packages, its man page and its libraries."""
    environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path)}
    assert run(venv / "bin/yalm", BUNDLED, *ASK, env=environment).rstrip("\n") == sentence
    for name in ("man/man1/yalm.1", "bash-completion/completions/yalm", "zsh/site-functions/_yalm"):
        assert (venv / "share" / name).is_file()
    (package,) = venv.glob("lib/python*/site-packages/yalm")
    loaded = run("ldd", package / "bin/yalm") + run("ldd", package / "lib/libyalm.so.0.2")
    paths = {line.split(" => ")[1].split(" (")[0] for line in loaded.splitlines() if " => " in line}
    own = {path for path in paths if path.startswith(str(venv)) or "yalm.libs" in path}
    assert len(own) > 4 and all("/lib/x86_64-linux-gnu/lib" in path or "/lib/aarch64" in path for path in paths - own)
    assert {path.split("/")[-1].split(".")[0] for path in paths - own} <= {"libc", "libm", "libdl", "libpthread"}


def test_the_wheels_module(venv, sentence, tmp_path):
    code = (
        "from yalm import Model\n"
        f"with Model({str(BUNDLED)!r}) as model:\n"
        "    print(''.join(model.generate('Once upon a time', max_tokens=12, temperature=0)))\n"
        "    assert model.logits([1, 2]).shape == (4096,)\n"
    )
    environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path)}
    assert run(venv / "bin/python", "-c", code, env=environment).rstrip("\n") == sentence


def test_the_wheel_says_what_it_runs_on():
    name = one("*.whl").name
    assert "-py3-none-manylinux_2_" in name and name.endswith(("_x86_64.whl", "_aarch64.whl"))
    with zipfile.ZipFile(one("*.whl")) as file:
        names = file.namelist()
    assert all(any(f"licenses/libraries/{library}" in name for name in names) for library in ("libcjson1", "libpcre2"))


def test_the_wheel_for_arm(tmp_path, fable, sentence):
    """In the emulator, with the C library and nothing else of that processor's beside it."""
    wheels, root = list(PACKED.glob("arm64/*.whl")), ROOT / "build/arm64/root"
    if not wheels or not shutil.which("qemu-aarch64"):
        pytest.skip("`make packages-arm64` builds it, QEMU runs it")
    assert wheels[0].name.endswith("_aarch64.whl")
    with zipfile.ZipFile(wheels[0]) as file:
        file.extractall(tmp_path)
    for name in ("ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6"):
        (path,) = {path.resolve() for path in root.glob(f"**/{name}")}
        for folder in ("lib", "lib/aarch64-linux-gnu"):
            (tmp_path / "root" / folder).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / "root" / folder / name)
    (tmp_path / "yalm/bin/yalm").chmod(0o755)
    words = ("qemu-aarch64", "-cpu", "max", "-L", tmp_path / "root", tmp_path / "yalm/bin/yalm", fable, *ASK)
    assert run(*words).rstrip("\n") == sentence


@pytest.fixture
def bare_root(tmp_path):
    """A root with the C library and nothing else: no shell."""
    for path in {
        word for word in run("ldd", ROOT / "yalm").split() if re.search(r"/(libc|libm|ld-linux[^/]*)\.so", word)
    }:
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / path[1:])
    (tmp_path / "proc").mkdir()
    return tmp_path


@as_root
def test_the_tarball(bare_root, fable, sentence):
    with tarfile.open(one("*.tar.gz")) as file:
        file.extractall(bare_root)
    (folder,) = bare_root.glob("yalm-*")
    shutil.copy(fable, bare_root / "model.bin")
    program = f"/{folder.name}/bin/yalm"
    # The loader finds what lies beside a program by /proc.
    inside = (
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount --bind /proc "$0/proc" && exec /usr/sbin/chroot "$0" "$@"',
        bare_root,
    )
    assert run(*inside, program, "/model.bin", *ASK).rstrip("\n") == sentence
    assert run(*inside, program, "--version").startswith("yalm 0.2.0")


@pytest.fixture(scope="module")
def debian(tmp_path_factory):
    """A Debian of the least size."""
    if not shutil.which("debootstrap", path="/usr/sbin:/usr/bin"):
        pytest.skip("no debootstrap here")
    kept = os.environ.get("YALM_DEBIAN_ROOT")  # one that is there already, to be copied
    folder = tmp_path_factory.mktemp("debian") / "root"
    environment = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    if kept:
        run("cp", "-a", kept, folder)
    else:
        suite = run("sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME").strip()
        run(
            "debootstrap",
            "--variant=minbase",
            suite,
            folder,
            "http://deb.debian.org/debian",
            env=environment,
            timeout=1800,
        )
    yield folder
    shutil.rmtree(folder)


@as_root
def test_the_debian_package(debian, fable, sentence):
    """apt finds what it needs; it brings the man page, completions and the unit; and goes without a trace."""

    def inside(*words):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}
        return run("chroot", debian, *words, env=environment, timeout=1800)

    shutil.copy(one("*.deb"), debian / "yalm.deb")
    shutil.copy(fable, debian / "model.bin")
    shutil.copy("/etc/resolv.conf", debian / "etc/resolv.conf")
    inside("apt-get", "install", "-y", "-q", "--no-install-recommends", "/yalm.deb")
    assert inside("yalm", "/model.bin", *ASK).rstrip("\n") == sentence
    for name in ("bash-completion/completions/yalm", "zsh/site-functions/_yalm", "doc/yalm/copyright"):
        assert (debian / "usr/share" / name).is_file()
    assert "ExecStart=/usr/bin/yalm" in (debian / "usr/lib/systemd/system/yalm@.service").read_text()
    inside("apt-get", "purge", "-y", "-q", "yalm")
    left = [path for path in debian.glob("usr/**/*yalm*") if "info" not in str(path)]
    assert left == []


def test_the_unit_is_one_that_systemd_takes(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    unit = (ROOT / "packaging/yalm@.service").read_text().replace("@PREFIX@/bin/yalm", "/bin/true")
    (tmp_path / "yalm@x.service").write_text(unit)
    run("systemd-analyze", "verify", "--man=no", tmp_path / "yalm@x.service")
