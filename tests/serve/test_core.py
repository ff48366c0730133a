"""The server itself: turns, limits, clients that leave or are slow, and keys."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest
from harness import HANG, ROOT, patience

from .conftest import Answer

LONG = {"max_tokens": 1900, "ignore_eos": True, "seed": 1}


def stream(server, **fields):
    """A connection on which a stream of a completion has begun, and its response."""
    connection = server.connect()
    body = json.dumps({"stream": True, **fields})
    connection.request("POST", "/v1/completions", body)
    return connection, connection.getresponse()


def test_health_needs_nothing(server):
    answer = server.get("/health")
    assert answer.status == 200 and answer.json == {"status": "ok"}


def test_unknown_paths_and_methods(server):
    assert server.get("/nothing").status == 404 and "/nothing" in server.get("/nothing").error
    answer = server.get("/v1/completions")
    assert answer.status == 405 and answer.headers["Allow"] == "POST" and "POST, found GET" in answer.error
    assert server.ask("HEAD", "/health").status == 200
    assert server.get("/models").json == server.get("/v1/models").json


@pytest.mark.parametrize(
    "body, message",
    [
        (b"", "is no JSON"),
        (b"{", "is no JSON"),
        (b"[1]", "not an object"),
        (b'{"prompt":"x"} x', "bytes after the value"),
        (b'{"prompt":"\xff"}', "that is not UTF-8"),
        (b'{"prompt":"\xed\xa0\x80"}', "that is not UTF-8"),
        (b'{"prompt":"a\\u0000b"}', "an escaped NUL"),
        (b'{"prompt":"a\x00b"}', "a control character"),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "nesting too deep"),
        (b'{"a":[' + b"1," * (1 << 20) + b"1]}", "too many values"),
        (b'{"prompt":01}', "a number that JSON does not have"),
        (b'{"prompt":' + b"1" * 70 + b"}", "a number of too many digits"),
        (b"{}", "'prompt': expected"),
        (b'{"prompt":{}}', "'prompt': expected"),
        (b'{"prompt":[]}', "'prompt': expected"),
        (b'{"prompt":[1,{}]}', "'prompt': expected token ids from 0 to 4095, or texts"),
        (b'{"prompt":{"prompt_string":"x","multimodal_data":["y"]}}', "'prompt': expected"),
        (b'{"prompt":[1.5]}', "'prompt': expected token ids"),
        (b'{"prompt":[4096]}', "'prompt': expected token ids"),
        (b'{"prompt":[-1]}', "'prompt': expected token ids"),
        (b'{"prompt":[[]]}', "the prompt has no tokens"),
        (b'{"prompt":["x",[[]]]}', "'prompt': expected token ids"),
        (b'{"prompt":["x",true]}', "'prompt': expected a list"),
        (b'{"prompt":"x","n":17}', "'n': expected an integer from 1 to 16"),
        (b'{"prompt":"x","n":1.5}', "'n': expected"),
        (b'{"prompt":"x","temperature":"hot"}', "'temperature': expected a number"),
        (b'{"prompt":"x","temperature":-1}', "'temperature': expected a number from 0"),
        (b'{"prompt":"x","top_p":2}', "'top_p': expected"),
        (b'{"prompt":"x","stop":[""]}', "'stop': expected strings"),
        (b'{"prompt":"x","stop":5}', "'stop': expected a string"),
        (b'{"prompt":"x","stop":[' + b'"x",' * 16 + b'"x"]}', "'stop': expected a string, or a list of at most 16"),
        (b'{"prompt":"x","logit_bias":{"x":"y"}}', "'logit_bias'"),
        (b'{"prompt":"x","logit_bias":{"5000":1}}', "'logit_bias'"),
        (b'{"prompt":"x","logit_bias":{"50":101}}', "'logit_bias'"),
        (b'{"prompt":"x","stream":1}', "'stream': expected true or false"),
        (b'{"prompt":"x","stream_options":1}', "'stream_options': expected an object"),
        (b'{"prompt":"x","suffix":"y"}', "no tokens for text in the middle"),
        (b'{"prompt":"x","best_of":2}', "'best_of': choosing"),
        (b'{"prompt":"x","logprobs":21}', "'logprobs': expected an integer from 0 to 20"),
        (b'{"prompt":"x","seed":-2}', "'seed': expected"),
    ],
    ids=lambda value: repr(value[:40]),
)
def test_bad_bodies_are_refused_in_words(server, body, message):
    answer = server.ask("POST", "/v1/completions", body)
    assert answer.status == 400 and message in answer.error


def test_body_that_is_too_long(server):
    answer = server.ask("POST", "/v1/completions", b'{"prompt":"' + b"x" * (17 << 20) + b'"}')
    assert answer.status == 413 and "16777216" in answer.error


def test_context_names_both_numbers(server):
    error = server.post("/v1/completions", prompt=[5] * 3000, max_tokens=1)
    assert (
        error.status == 400
        and "3000 tokens and exceeds the available context size, which is 2048" in error.json["error"]["message"]
    )
    assert {"code": "context_length_exceeded", "n_prompt_tokens": 3000, "n_ctx": 2048}.items() <= error.json[
        "error"
    ].items()
    message = server.post("/v1/messages", max_tokens=1, messages=[{"role": "user", "content": "x"}]).json["error"][
        "message"
    ]
    assert "chat template" in message


def test_a_prompt_that_is_far_too_long_is_not_tokenised(server):
    started = time.monotonic()
    answer = server.post("/v1/completions", prompt="a b " * (15 << 18))
    assert answer.status == 400 and time.monotonic() - started < patience(3)
    assert "tokens and exceeds" in answer.json["error"]["message"] and "at least" in answer.json["error"]["message"]


def test_more_than_the_context_holds_is_what_it_holds(server):
    """Some clients ask for 32,000 tokens whatever the model."""
    answer = server.complete([5] * 2000, max_tokens=32000, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 48 and answer["choices"][0]["finish_reason"] == "length"
    assert server.post("/v1/completions", prompt=[5] * 2048, max_tokens=1).status == 400
    assert server.complete([5] * 2048, max_tokens=0)["usage"]["total_tokens"] == 2048


def test_a_seed_for_all_that_leave_it_open(start, server):
    seeded = start("--seed", 9)
    fields = {"max_tokens": 20, "cache_prompt": False}
    assert seeded.text("The king", **fields) == seeded.text("The king", **fields)
    assert seeded.text("The king", **fields) == server.text("The king", seed=9, **fields)
    assert server.text("The king", **fields) != server.text("The king", **fields)


def test_same_text_alone_and_among_others(server):
    """Nothing of what else is going on shows in a text, nor in a probability."""
    fields = [
        {
            "prompt": f"The {animal} said to the king",
            "max_tokens": 40,
            "seed": seed,
            "logprobs": 1,
            "cache_prompt": False,
        }
        for seed, animal in enumerate(["fox", "wolf", "hare", "bear", "goose", "mouse", "cat", "dog"])
    ]
    fields += [{**fields[0], "temperature": 0}, {**fields[1], "prompt": "A long time ago, " * 60}]

    def choice(one):
        return server.complete(**one)["choices"][0]

    alone = [choice(one) for one in fields]
    with concurrent.futures.ThreadPoolExecutor(len(fields)) as pool:
        assert list(pool.map(choice, fields)) == alone
    assert len({json.dumps(each) for each in alone}) == len(fields)


def test_a_long_prompt_stalls_nobody(start):
    """While one client's prompt is read, another's tokens go on coming, between its pieces."""
    server = start("--parallel", 2, "--set", "machine.chunk=8")
    connection, response = stream(server, prompt="Once", **{**LONG, "max_tokens": 1000})
    response.readline()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reading = pool.submit(server.complete, [5, 6, 7, 8] * 500, max_tokens=1)
        server.wait_until(lambda: any(slot["state"] == "reading" for slot in server.get("/slots").json))
        came = 0
        while not reading.done():
            came += response.readline().startswith(b"data:")
        assert came > 100  # of 250 pieces, each with a token before it
    connection.close()


def test_turns_are_fair(start):
    """Of requests that run together none gets more than its share, from the last one's first token on."""
    server = start("--parallel", 4)
    streams = [stream(server, prompt=f"Tale {i}", **LONG) for i in range(4)]
    for _, response in streams:
        response.readline()

    def counts():
        return [slot["n_generated"] for slot in server.get("/slots").json]

    before = counts()
    server.wait_until(lambda: min(counts()) > max(before) + 60)
    grown = [after - first for after, first in zip(counts(), before, strict=True)]
    assert min(grown) >= 60 and max(grown) - min(grown) <= 4, (before, grown)
    for connection, _ in streams:
        connection.close()


def test_prompts_are_read_by_turns(start):
    server = start("--parallel", 3, "--set", "machine.chunk=4")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(server.complete, [5 + i, 6, 7, 8] * 500, max_tokens=1) for i in range(2)]
        seen = []
        while not any(each.done() for each in asked):
            seen.append([slot["n_tokens"] for slot in server.get("/slots").json if slot["state"] == "reading"])
    both = [counts for counts in seen if len(counts) == 2]
    first, last = (max(counts) - min(counts) for counts in (both[0], both[-1]))
    assert len(both) > 3 and last - first <= 40, both


@pytest.mark.parametrize("streamed", [False, True], ids=["waiting", "streaming"])
def test_who_leaves_is_not_worked_for(server, streamed):
    before = server.metric("generated_tokens_total")
    connection = server.connect()
    body = {"prompt": "Once", "n": 16, "stream": streamed, **LONG}
    connection.request("POST", "/v1/completions", json.dumps(body))
    server.wait_until(lambda: server.busy() == 1)
    if streamed:
        connection.getresponse()
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    went = time.monotonic()
    server.wait_until(lambda: server.busy() == 0)
    assert time.monotonic() - went < patience(3)
    assert server.metric("generated_tokens_total") - before < 16 * 1900
    assert server.text("Once upon a time", max_tokens=3, temperature=0)


@pytest.mark.parametrize("streamed", [False, True], ids=["waiting", "streaming"])
def test_who_sends_nothing_more_is_answered(server, streamed):
    """A connection that the client has half closed: it looks like one that is closed, until it is written to."""
    body = {"prompt": "Once", **LONG}
    whole = server.post("/v1/completions", **body).json["choices"][0]["text"]
    before = server.metric("requests_left_total")
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": streamed}))
    connection.sock.shutdown(socket.SHUT_WR)
    answer = Answer(connection.getresponse())
    connection.close()
    assert answer.status == 200
    if streamed:
        assert "".join(event["choices"][0]["text"] for event in answer.events) == whole
    else:
        assert answer.json["choices"][0]["text"] == whole
    assert server.metric("requests_left_total") == before


def test_who_speaks_an_older_http_is_not_asked(server):
    """HTTP/1.0 has no interim responses: who sends nothing more counts as gone, and is told so."""
    before = server.metric("requests_left_total")
    body = json.dumps({"prompt": "Once", "n": 16, **LONG}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        raw.shutdown(socket.SHUT_WR)
        found = b"".join(iter(lambda: raw.recv(4096), b""))
    assert b" 400 " in found and b"keep it open, or ask by HTTP/1.1" in found and b"100 Continue" not in found
    server.wait_until(lambda: server.busy() == 0)
    assert server.metric("requests_left_total") == before + 1


def test_queue_has_a_limit(start):
    server = start("--parallel", 1, "--set", "serve.queue=2")
    connections = []
    for _ in range(3):
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "Once", "n": 16, **LONG}))
        connections.append(connection)
    server.wait_until(lambda: server.metric("tasks_running") == 1 and server.metric("tasks_waiting") == 2)
    answer = server.post("/v1/completions", prompt="Once", max_tokens=1)
    assert (
        answer.status == 503 and answer.headers["Retry-After"] and "3 requests are running or waiting" in answer.error
    )
    streamed = server.post("/v1/completions", prompt="Once", max_tokens=1, stream=True)
    assert streamed.status == 503 and streamed.headers["Content-Type"] == "application/json"
    for connection in connections:
        connection.close()
    server.wait_until(lambda: server.metric("tasks_running") + server.metric("tasks_waiting") == 0)
    assert server.text("Once", max_tokens=1)


def test_slow_clients_hold_nobody_up(server):
    """Hundreds that never end their header, or their body, or never read: the others are answered as ever."""
    sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    for i, each in enumerate(sockets):
        each.send(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + (b"Content-Length: 100\r\n\r\n{" if i % 2 else b"X-")
        )
    started = time.monotonic()
    assert server.text("Once upon a time", max_tokens=5)
    assert time.monotonic() - started < patience(10)
    for each in sockets:
        each.close()


def test_what_is_no_http(server):
    for rubbish in (
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"A" * 100000,
    ):
        with socket.create_connection(("127.0.0.1", server.port)) as raw:
            raw.settimeout(0.5)
            with contextlib.suppress(OSError):
                raw.sendall(rubbish)
                raw.shutdown(socket.SHUT_WR)
                raw.recv(1000)
    assert server.get("/health").status == 200


def test_connection_is_used_again(server):
    connection = server.connect()
    for n in (1, 2, 3):
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": n}))
        assert json.loads(connection.getresponse().read())["usage"]["completion_tokens"] <= n
    connection.close()


def test_keys(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# of the house\nfirst-key\n\nsecond key\n")
    server = start("--api-key-file", keys)
    assert server.get("/health").status == 200
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer first-ke"},
        {"Authorization": "Bearer first-key2"},
        {"Authorization": "Bearer "},
        {"Authorization": "first-key"},
        {"x-api-key": "# of the house"},
    ):
        answer = server.get("/v1/models", **headers)
        assert answer.status == 401 and "a key is needed" in answer.error
    for headers in ({"Authorization": "Bearer first-key"}, {"x-api-key": "second key"}):
        assert server.get("/v1/models", **headers).status == 200


@pytest.mark.parametrize(
    "origin, host, status",
    [
        ("https://example.org", None, 403),
        ("null", None, 403),
        ("https://localhost.example.org", None, 403),
        ("chrome-extension://abcdef", None, 403),
        ("http://rebound.example:8080", "rebound.example:8080", 403),  # a name that its owner has led here
        (None, "rebound.example", 403),
        (None, "x" * 300, 403),
        ("http://127.0.0.1:{port}", None, 200),
        ("http://localhost:3000", None, 200),
        ("tauri://localhost", None, 200),
        ("http://[::1]:5173", None, 200),
        (None, "LOCALHOST", 200),
        (None, "yalm.localhost:80", 200),
        (None, "[::1]:8080", 200),
        (None, "192.0.2.1:8080", 200),
    ],
)
def test_pages_of_other_sites_are_refused(server, origin, host, status):
    headers = {"Origin": origin and origin.format(port=server.port), "Host": host}
    headers = {name: value for name, value in headers.items() if value}
    answer = server.ask("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 1}), headers)
    assert answer.status == status
    assert answer.headers["Access-Control-Allow-Origin"] == (headers.get("Origin") if status == 200 else None)
    if status == 403:
        assert "other sites" in answer.error


def ask_beforehand(server, origin):
    """What a browser asks before it sends a page's request."""
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    return server.ask("OPTIONS", "/v1/chat/completions", headers={"Origin": origin, **asked})


def test_pages_with_a_key_may_ask_and_read(start, server, tmp_path):
    (tmp_path / "keys").write_text("key\n")
    keyed = start("--api-key-file", tmp_path / "keys")
    for where, origin in ((keyed, "https://example.org"), (server, "http://localhost:3000")):
        answer = ask_beforehand(where, origin)
        assert answer.status == 200 and answer.body == b""
        assert answer.headers["Access-Control-Allow-Origin"] == origin and answer.headers["Vary"] == "Origin"
        assert answer.headers["Access-Control-Allow-Methods"] == "GET, POST, DELETE, OPTIONS"
        assert answer.headers["Access-Control-Allow-Headers"] == "authorization,content-type"
    assert ask_beforehand(server, "https://example.org").status == 403
    assert keyed.ask("OPTIONS", "/nothing").status == 404
    page = {"Origin": "https://example.org"}
    assert keyed.get("/v1/models", **page).status == 401
    answer = keyed.get("/v1/models", **page, Authorization="Bearer key")
    assert answer.status == 200 and answer.headers["Access-Control-Allow-Origin"] == "https://example.org"


@pytest.mark.parametrize(
    "options, code, message",
    [
        (["--host", "0.0.0.0"], 2, "--api-key-file"),
        (["--host", "no.such.host.invalid"], 2, "no.such.host.invalid"),
        (["--host", "192.0.2.1", "--insecure"], 1, "192.0.2.1"),
        (["--api-key-file", "/nothing"], 1, "/nothing: No such file"),
        (["--api-key-file", "/dev/null"], 1, "/dev/null: no key in it"),
        (["--parallel", "0"], 2, "'--parallel'"),
        (["--parallel", "256", "-T", "1000000"], 4, "256 sessions take"),
        (["-i", "x"], 2, "'-i' does not belong to mode serve"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_start(yalm, fable, options, code, message):
    command = [str(yalm), str(fable), "-m", "serve", "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == code and message in done.stderr and done.stdout == ""


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6")
def test_an_address_of_ipv6(start):
    server = start("--host", "::1")
    assert server.lines[-1] == f"listening on http://[::1]:{server.port}\n"
    connection = http.client.HTTPConnection("::1", server.port, timeout=HANG)
    connection.request("GET", "/v1/models", headers={"Origin": f"http://[::1]:{server.port}"})
    assert connection.getresponse().status == 200
    connection.close()


def test_port_in_use(server, yalm, fable):
    command = [str(yalm), str(fable), "-m", "serve", "--port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 1 and "Address already in use" in done.stderr


def test_metrics_are_prometheus(server):
    answer = server.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    for line in answer.body.decode().splitlines():
        assert re.match(r"# (HELP|TYPE) yalm_\w+ |yalm_\w+ [0-9.e+-]+$", line), line


def test_idle_sessions_take_no_time(start):
    """Threads of sessions that wait sleep."""
    server = start("--parallel", 8)
    for _ in range(8):
        server.text("Once", max_tokens=2, cache_prompt=False)
    time.sleep(0.5)

    def seconds():
        with open(f"/proc/{server.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = seconds()
    time.sleep(1)
    assert seconds() - before <= 5  # hundredths


def test_the_description_names_the_routes(server):
    description = server.get("/openapi.json").json
    routes = {(method.upper(), path) for path, methods in description["paths"].items() for method in methods}
    source = (ROOT / "src/serve/routes.c").read_text(encoding="utf-8")
    known = {
        (method, path + "{name}" * path.endswith(("/models/", "/responses/")) + "{id}" * path.endswith("/slots/"))
        for method, path in re.findall(r'{"(\w+)", "(/[^"]*)"', source)
    }
    assert routes == known - {("GET", "/")}  # a page


def test_the_page(server):
    answer = server.get("/")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8" and b"<title>yalm</title>" in answer.body
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    # It asks nobody but this server, for nothing but this.
    assert set(re.findall(rb'fetch\(chats \? "([^"]+)" : "([^"]+)"|fetch\("([^"]+)"', answer.body)) == {
        (b"/v1/chat/completions", b"/v1/completions", b""),
        (b"", b"", b"/v1/models"),
    }
    assert not re.search(rb'(src|href)="(?!data:)', answer.body) and b"http" not in answer.body
