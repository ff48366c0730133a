"""The man page that `yalm --man` prints: it has every option and key, with a text, and renders without a warning."""

import re
import shutil
import subprocess

import pytest
from harness import ROOT

RENDERERS = {
    "groff": ("groff", "-man", "-ww", "-b", "-Tutf8"),
    "mandoc": ("mandoc", "-T", "lint", "-W", "warning"),
}


@pytest.fixture(scope="module")
def page(bare):
    done = bare("--man")
    assert done.returncode == 0 and done.stderr == b""
    return done.stdout.decode("ascii")


def items(page):
    """(heading, text) of each item, without fonts and escapes."""
    plain = re.sub(r"\\f[BIR]", "", page).replace("\\-", "-").replace("\\e", "\\").replace("\\&", "")
    return re.findall(r"^\.TP\n(?:\.B )?(.+)\n(.+)$", plain, flags=re.M)


def table_names():
    source = (ROOT / "src/cli/option_table.c").read_text(encoding="utf-8")
    rows = re.findall(r"""^    \{(?:"\w+"|NULL), "\w*", "([^"]+)",""", source, flags=re.M)
    return [name for names in rows for name in names.split(",")]


def test_every_option_and_key_has_a_text(page):
    names = table_names()
    headings = [heading for heading, _ in items(page)]
    assert len(names) > 80
    for name in names:
        pattern = rf"^{re.escape(name)}=" if "." in name else rf"(^|, )--{re.escape(name)}(,| |$)"
        assert any(re.search(pattern, heading) for heading in headings), name
    assert [heading for heading, text in items(page) if text.startswith(".") or not text.strip()] == []


def test_every_mode_of_the_help_is_described(page, bare):
    modes = re.search(r"^Modes\n(.*?)^Mode\n", bare("--help").stdout.decode(), flags=re.S | re.M)[1]
    described = {heading for heading, _ in items(page)}
    names = re.findall(r"^  (\w+) ", modes, flags=re.M)
    assert len(names) > 10 and [mode for mode in names if mode not in described] == []


def test_defaults_and_modes_are_said(page):
    texts = dict(items(page))
    assert texts["-n, --n-predict, --predict N"] == "tokens to generate; -1 is endless (256)"
    assert texts["--kv, --cache-type fp16|fp32|int8"] == "type of the KV cache (fp16)"
    assert texts["--host H"] == "address to listen at (127.0.0.1)"
    assert texts["serve.drain=SECONDS"].endswith("(30)")
    assert "\n.br\nModes: serve\n" in page


@pytest.mark.parametrize("name", RENDERERS)
def test_renders_without_warnings(page, name):
    if not shutil.which(name):
        pytest.skip(f"no {name} here")
    done = subprocess.run(RENDERERS[name], input=page, capture_output=True, text=True)
    if name == "mandoc":  # there is no date: it would be another one with each build
        assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []
        return
    assert (done.returncode, done.stderr) == (0, "")
    text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    assert "--n-predict" in text and r"\n \t \r \\" in text
