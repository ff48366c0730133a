"""Makes the pictures of the server's page in docs/: MODEL answers, Chromium shows it.

usage: .venv/bin/python tests/serve/make_pictures.py build/smollm2-135m.bin
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from browser import Page

ROOT = Path(__file__).resolve().parents[2]


def start(model):
    command = [ROOT / "yalm", model, "-m", "serve", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if line.startswith("listening on"):
            return server, line.split()[-1]
    raise SystemExit(f"{model}: the server does not start")


def ask(page, text):
    n = page("current.turns.length")
    page.say(text)
    page.wait(
        lambda: page(f"!running && current.turns.length === {n + 2} && current.turns[{n + 1}].speed !== undefined")
    )


def look(page, theme, name, **screen):
    page.call("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, **screen)
    page(f'while (document.documentElement.dataset.theme !== "{theme}") $("theme").click(); 1')
    page("document.activeElement.blur(); new Promise(done => setTimeout(done, 500))")
    (ROOT / "docs" / name).write_bytes(page.picture())


def main():
    server, url = start(sys.argv[1])
    with tempfile.TemporaryDirectory() as profile:
        page = Page(url + "/", Path(profile))
        try:
            page.wait(lambda: page('document.querySelector("nav h1")?.textContent'))
            page("settings.temperature = 0; settings.max_tokens = 300; 1")
            ask(page, "Give three tips for staying healthy.")
            look(page, "light", "page-light.png", width=960, height=560, mobile=False)
            look(page, "dark", "page-dark.png", width=390, height=560, mobile=True)
        finally:
            page.close()
            server.terminate()
            server.wait(60)


if __name__ == "__main__":
    main()
