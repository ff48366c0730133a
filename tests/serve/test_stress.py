"""Many requests at once, well-formed, malformed, and left half-way: nothing falls over, nothing leaks, every well-formed one is
answered right.

YALM_STRESS=10000 makes it so many requests; 400 else."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import random
import socket

from harness import VARIANT

from .conftest import Answer

REQUESTS = int(os.environ.get("YALM_STRESS", "400"))
ANSWERED = [
    {"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0},
    {"prompt": ["The king", "The queen"], "max_tokens": 3, "seed": 5},
    {"prompt": "A fox", "max_tokens": 0, "echo": True, "logprobs": 2},
    {"prompt": "Is it so?", "max_tokens": 9, "grammar": 'root ::= "yes" | "no"', "seed": 1},
    {
        "prompt": "One",
        "max_tokens": 30,
        "json_schema": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 3},
        "seed": 2,
    },
]
MALFORMED = [
    b"{",
    b"\xff",
    b'{"prompt":1}',
    b'{"prompt":"x","n":99}',
    b'{"prompt":"x","grammar":"root ::= ("}',
    b"[]",
    b"",
]


def rss(server):
    with open(f"/proc/{server.process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def texts(body):
    return [choice["text"] for choice in json.loads(body)["choices"]]


def leave(server, choose):
    """Sends a request, or some of one, and goes at some moment."""
    fields = {
        "prompt": "Once",
        "max_tokens": 1900,
        "ignore_eos": True,
        "stream": choose.random() < 0.5,
        "n": choose.randrange(1, 4),
    }
    body = json.dumps(fields).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.settimeout(choose.random() * 0.05 + 0.001)
        with contextlib.suppress(OSError):
            raw.sendall((head + body)[: choose.choice([5, len(head) + 3, len(head + body)])])
            if choose.random() < 0.3:
                raw.shutdown(socket.SHUT_WR)
            raw.recv(choose.randrange(1, 3000))


def ask(server, fields, half_closed):
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps(fields))
    if half_closed:
        connection.sock.shutdown(socket.SHUT_WR)
    with contextlib.closing(connection):
        return Answer(connection.getresponse())


def test_many_requests(start):
    server = start("--parallel", 4, "--set", "serve.queue=100", "--set", "serve.cache_ram=8")
    fields = [{**each, "cache_prompt": False} for each in ANSWERED]
    right = [texts(server.post("/v1/completions", **each).body) for each in fields]

    def one(number):
        choose = random.Random(number)
        kind = choose.random()
        if kind < 0.3:
            leave(server, choose)
        elif kind < 0.5:
            assert server.ask("POST", "/v1/completions", choose.choice(MALFORMED)).status == 400
        else:
            which = choose.randrange(len(fields))
            answer = ask(server, fields[which], choose.random() < 0.3)
            assert answer.status == 503 or (answer.status == 200 and texts(answer.body) == right[which]), answer.body

    def run(first, last):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(one, range(first, last)))
        server.wait_until(lambda: server.busy() == 0)

    run(0, REQUESTS // 4)
    before = rss(server)
    run(REQUESTS // 4, REQUESTS)
    if VARIANT == "release":  # sanitizers keep what is freed
        assert rss(server) - before < 20e6
    print(f"{REQUESTS} requests: resident {before / 1e6:.1f} MB after a quarter, {rss(server) / 1e6:.1f} MB in the end")
