"""Offers the server at the address in argv[1] the tools of MCP servers: each alone, then all. Fails where one is refused."""

import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

SERVERS = ("mcp-atlassian", "word_mcp_server", "redis-mcp-server")
# Made up: they list their tools without asking anybody.
SECRETS = {
    "JIRA_URL": "https://localhost",
    "JIRA_USERNAME": "a",
    "JIRA_API_TOKEN": "a",
    "CONFLUENCE_URL": "https://localhost/wiki",
    "CONFLUENCE_USERNAME": "a",
    "CONFLUENCE_API_TOKEN": "a",
}


async def list_tools(program, folder):
    command = str(Path(sys.executable).parent / program)
    place = StdioServerParameters(command=command, env={**os.environ, **SECRETS, "HOME": folder}, cwd=folder)
    with open(os.devnull, "w") as nowhere:
        async with stdio_client(place, errlog=nowhere) as streams, ClientSession(*streams) as session:
            await session.initialize()
            return (await session.list_tools()).tools


def ask(path, tools, **fields):
    body = {"messages": [{"role": "user", "content": "Hello"}], "tools": tools, **fields}
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer), answer.headers["Warning"]


every, loosened = [], 0
with tempfile.TemporaryDirectory() as folder:
    for program in SERVERS:
        for tool in asyncio.run(list_tools(program, folder)):
            function = {"name": tool.name, "description": tool.description, "parameters": tool.inputSchema}
            every.append({"type": "function", "function": function})
for tool in every:
    for choice in ("auto", "required"):
        _, warning = ask("/v1/chat/completions/input_tokens", [tool], tool_choice=choice)
        loosened += "the schema of" in (warning or "")
_, warning = ask("/v1/chat/completions/input_tokens", every, tool_choice="required")
print(f"{len(every)} tools, {loosened // 2} loosened")
print("done")
