"""The page at /, in a headless Chromium where there is one: types, streams, stops, regenerates, reloads."""

from __future__ import annotations

import pytest
from browser import CHROMIUM, Page

# Whether so small a model ends its answer early hangs on its logits' last bits. So the page's requests ask it not to.
NO_END = """const ask = fetch;
window.fetch = (url, how) =>
  ask(url, how?.body ? { ...how, body: JSON.stringify({ ...JSON.parse(how.body), ignore_eos: true }) } : how); 1"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("which", ["talker", "server"])
def test_page(request, which, tmp_path):
    server = request.getfixturevalue(which)
    page = Page(f"http://127.0.0.1:{server.port}/", tmp_path)
    try:
        page.wait(lambda: page('document.querySelector("nav h1")?.textContent === "fable-4m"'))
        assert page("chats") == (which == "talker")

        page(NO_END)
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

        page("settings.max_tokens = 3; 1")  # shorter than what was stopped, whatever comes
        page.press("r", "KeyR", 82, modifiers=1)
        page.wait(
            lambda: page("!running && current.turns.length === 4") and page("current.turns[3].content") != stopped
        )

        # What went wrong is shown, and is no part of what the model is told next; nor is the message that got no answer.
        page.say("word " * 2500)
        page.wait(lambda: page("!running && current.turns.length === 6"))
        assert "context size" in page('document.querySelector(".turn:last-child .problem").textContent')
        told = page('JSON.stringify(body([...current.turns, { role: "user", content: "Well?" }]))')
        assert "Go on" in told and "Well?" in told and "word word" not in told and "context size" not in told
        page("current.turns.splice(4); save(); show(); 1")

        # The conversation is there after the page has come again; a new one is beside it.
        page.call("Page.reload")
        page.wait(lambda: page('typeof talks !== "undefined" && talks.length === 2'))
        page("open(talks.find(talk => talk.turns.length))")
        assert page('document.querySelectorAll(".turn").length') == 4
        page('document.querySelector("#list button[title=Delete]:last-child").click()')

        # Another tab's conversation is not overwritten, and one that was deleted does not come back.
        page('keep("talks", [{ id: 5, turns: [{ role: "user", content: "Elsewhere" }] }, ...read("talks", [])]); 1')
        page(NO_END + "; settings.max_tokens = 30; begin()")
        page.say("Here")
        page.wait(lambda: page("!running && current.turns.length === 2"))
        assert page('read("talks", []).map(talk => talk.turns[0].content)') == ["Here", "Once upon a time", "Elsewhere"]
        page("remove(talks.find(talk => talk.id === 5)); save(); 1")
        assert page('read("talks", []).map(talk => talk.turns[0].content)') == ["Here", "Once upon a time"]

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
        assert [each for each in page.complaints if "status of 400" not in str(each)] == []
    finally:
        page.close()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_page_asks_for_a_key(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sesame\n")
    server = start("--api-key-file", keys)
    page = Page(f"http://127.0.0.1:{server.port}/", tmp_path)
    try:
        page.wait(lambda: page('typeof current === "object" && current !== null'))
        page.say("Once")
        page.wait(lambda: page('document.querySelector(".problem")?.textContent.includes("Settings")'))
        page('settings.key = "sesame"; settings.max_tokens = 3; learn().then(regenerate); 1')
        page.wait(lambda: page("!running && current.turns[1].content !== '' && !current.turns[1].problem"))
    finally:
        page.close()
