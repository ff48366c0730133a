"""A page in a headless Chromium, spoken to by the DevTools protocol."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import struct
import subprocess
import urllib.request

from harness import HANG, wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    def __init__(self, url, profile):
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        command += [f"--user-data-dir={profile}", "--window-size=1100,750", "--hide-scrollbars", url]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.count, self.complaints = 0, []
        self.connect(int(self.wait(lambda: self.port_file(profile))), url)
        self.call("Runtime.enable")
        self.call("Log.enable")

    @staticmethod
    def port_file(profile):
        path = profile / "DevToolsActivePort"
        return path.exists() and path.read_text().partition("\n")[0]

    wait = staticmethod(wait_until)

    def connect(self, port, url):
        def find():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
                return [tab for tab in json.load(answer) if tab["type"] == "page" and tab["url"].startswith(url)]

        path = self.wait(find)[0]["webSocketDebuggerUrl"].split(str(port), 1)[1]
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=HANG)
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

    def picture(self):
        """What is to be seen, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self):
        self.process.terminate()
        self.process.wait(20)
