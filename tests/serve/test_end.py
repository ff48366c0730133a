"""The server's end: what runs goes on, for as long as it may; who comes is refused."""

from __future__ import annotations

import concurrent.futures
import http.client
import signal

import pytest

from .test_core import LONG, stream


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_end_lets_running_requests_finish(start, how):
    server = start("--set", "serve.drain=60")
    connection, response = stream(server, prompt="Once", **{**LONG, "max_tokens": 300})
    response.readline()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        whole = pool.submit(server.complete, "The king", **{**LONG, "max_tokens": 300})
        server.wait_until(lambda: server.busy() == 2)
        assert server.stop(how) == 0
        assert whole.result()["usage"]["completion_tokens"] == 300
    rest = response.read().decode()
    assert rest.endswith("data: [DONE]\n\n") and '"finish_reason":"length"' in rest
    connection.close()
    assert any("ending" in line for line in server.lines)


def test_who_comes_at_the_end_is_refused(start):
    """Several times over, for each end races with those who come; what runs goes on."""

    def come_until_refused(server):
        while True:
            try:
                server.get("/health")
            except ConnectionRefusedError:
                return True
            except (OSError, http.client.HTTPException):
                pass  # cut off: the end has come between

    for _ in range(8):
        server = start()
        connection, response = stream(server, prompt="Once", **{**LONG, "max_tokens": 100})
        response.readline()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            refused = [pool.submit(come_until_refused, server) for _ in range(3)]
            assert server.stop() == 0 and all(each.result() for each in refused)
        assert response.read().decode().endswith("data: [DONE]\n\n")
        connection.close()


def test_end_waits_no_longer_than_it_is_told(start):
    server = start("--set", "serve.drain=0")
    connection, response = stream(server, prompt="Once", n=16, **LONG)
    response.readline()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        whole = pool.submit(server.post, "/v1/completions", prompt="The king", n=16, **LONG)
        server.wait_until(lambda: server.busy() == 2)
        assert server.stop() == 0
        answer = whole.result()
    assert answer.status == 503 and "shutting down" in answer.error
    assert "shutting down" in response.read().decode().rsplit("data: ", 1)[1]
    connection.close()
