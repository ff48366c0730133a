"""The page at /, in a headless Chromium where there is one: types, streams, stops, regenerates, reloads. Spoken to by the DevTools protocol."""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import time
import urllib.request

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    def __init__(self, url, profile):
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        command += [f"--user-data-dir={profile}", "--window-size=1100,750", url]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.count, self.complaints = 0, []
        self.connect(int(self.wait(lambda: self.port_file(profile))), url)
        self.call("Runtime.enable")
        self.call("Log.enable")

    @staticmethod
    def port_file(profile):
        path = profile / "DevToolsActivePort"
        return path.exists() and path.read_text().partition("\n")[0]

    @staticmethod
    def wait(condition, seconds=60):
        ends = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < ends, "it does not come to be"
            time.sleep(0.05)
        return found

    def connect(self, port, url):
        def find():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
                return [tab for tab in json.load(answer) if tab["type"] == "page" and tab["url"].startswith(url)]

        path = self.wait(find)[0]["webSocketDebuggerUrl"].split(str(port), 1)[1]
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.stream = self.socket.makefile("rb")
        while self.stream.readline().strip():
            pass

    def receive(self):
        length = self.stream.read(2)[1] & 127
        if length > 125:
            length = struct.unpack(*((">H", self.stream.read(2)) if length == 126 else (">Q", self.stream.read(8))))[0]
        return json.loads(self.stream.read(length))

    def call(self, method, **parameters):
        self.count += 1
        data = json.dumps({"id": self.count, "method": method, "params": parameters}).encode()
        size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        self.socket.sendall(b"\x81" + size + b"\0\0\0\0" + data)
        while (answer := self.receive()).get("id") != self.count:
            level = answer.get("params", {}).get("entry", {}).get("level")
            if answer["method"] == "Runtime.exceptionThrown" or level == "error":
                self.complaints.append(answer["params"])
        return answer["result"]

    def __call__(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key, code, number, modifiers=0):
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=code,
                windowsVirtualKeyCode=number,
                modifiers=modifiers,
                **more,
            )

    def say(self, text):
        self('$("input").focus()')
        self.call("Input.insertText", text=text)
        self.press("Enter", "Enter", 13)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("which", ["talker", "server"])
def test_page(request, which, tmp_path):
    server = request.getfixturevalue(which)
    page = Page(f"http://127.0.0.1:{server.port}/", tmp_path)
    try:
        page.wait(lambda: page('document.querySelector("nav h1")?.textContent === "fable-4m"'))
        assert page("chats") == (which == "talker")

        page("settings.max_tokens = 30; settings.seed = 4; 1")
        page.say("Once upon a time")
        page.wait(lambda: page("!running && current.turns.length === 2 && current.turns[1].speed !== undefined"))
        assert page('document.querySelectorAll(".turn").length') == 2
        assert page('document.querySelector(".assistant .words").textContent') == page("current.turns[1].content") != ""
        assert "per second" in page('document.querySelector(".assistant .notes").textContent')

        # A long answer is stopped: the server stops, too.
        page(
            "settings.max_tokens = 1700; settings.temperature = 2; 1"
        )  # a text that does not repeat itself takes its time
        # The page itself looks for the time to stop: so small a model can have written all of it before a test asks again.
        page(
            "let button; const look = setInterval(() => { if (running && current.turns[3]?.content.length > 20) {"
            ' clearInterval(look); button = $("send").textContent; $("ask").requestSubmit(); } }, 1); 1'
        )
        page.say("Go on")
        page.wait(lambda: page('button === "Stop" && !running && $("send").textContent === "Send"'))
        server.wait_until(lambda: server.busy() == 0)
        stopped = page("current.turns[3].content")

        page("settings.max_tokens = 1; 1")  # shorter than what was stopped, whatever comes
        page.press("r", "KeyR", 82, modifiers=1)
        page.wait(
            lambda: page("!running && current.turns.length === 4") and page("current.turns[3].content") != stopped
        )

        # The conversation is there after the page has come again; a new one is beside it.
        page.call("Page.reload")
        page.wait(lambda: page('typeof talks !== "undefined" && talks.length === 2'))
        page("open(talks.find(talk => talk.turns.length))")
        assert page('document.querySelectorAll(".turn").length') == 4
        page('document.querySelector("#list button[title=Delete]:last-child").click()')

        page('$("theme").click()')
        theme = page("document.documentElement.dataset.theme")
        page('$("theme").click()')
        assert {theme, page("document.documentElement.dataset.theme")} == {"dark", "light"}

        # On a phone the conversations come when they are asked for, and nothing is wider than the screen.
        page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
        assert page("document.documentElement.scrollWidth") == 390
        page.wait(lambda: page('document.querySelector("nav").getBoundingClientRect().right <= 0'))
        page('$("menu").click()')
        page.wait(lambda: page('document.querySelector("nav").getBoundingClientRect().left === 0'))
        assert page.complaints == []
    finally:
        page.process.terminate()
        page.process.wait(20)
