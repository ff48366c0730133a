"""Requests that HTTP/1.1 does not allow."""

from __future__ import annotations

import socket

import pytest
from harness import HANG

BODY = b"Content-Length: 2\r\n\r\n{}"


def ask(server, request):
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANG) as client:
        client.sendall(request)
        return client.recv(65536).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "request_, status",
    [
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"),
        (b"GET /health HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /health HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX : a\r\n\r\n", b"400"),
        (b"GET /health%00x HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", b"501"),
    ],
    ids=str,
)
def test_form_of_a_request(server, request_, status):
    assert ask(server, request_).split(b" ")[1] == status
