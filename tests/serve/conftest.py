"""A server for the tests: the program with `-m serve` on a free port of loopback, and a client of plain http.client."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import subprocess
import threading

import pytest
from harness import HANG, ROOT, convert_directory, wait_until

# Shows tools, calls and results.
TEMPLATE = """{%- if tools %}Tools: {{ tools | tojson }}{{ "\\n" }}{% endif %}
{%- for m in messages %}[{{ m.role }}] {{ m.content }}
{%- for c in m.tool_calls or [] %}{% set f = c.function -%}
CALL{% endfor %}
{{- "\\n" }}{% endfor %}{% if add_generation_prompt %}[assistant] {% if thinking %}<think>{{ "\\n" }}{% endif %}{% endif %}"""
HERMES = """{{ '<tool_call>\\n{"name": "' + f.name + '", "arguments": ' }}{{ f.arguments | tojson -}}
{{ '}\\n</tool_call>' }}"""
GEMMA = """<|tool_call>call:{{ f.name }}{ {%- for k, v in f.arguments | items %}{{ k }}:
{%- if v is string %}<|"|>{{ v }}<|"|>{% else %}{{ v | tojson }}{% endif %}{{ "," if not loop.last }}{% endfor -%}
}<tool_call|>"""


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The message of an error in OpenAI's form."""
        error = self.json["error"]
        assert set(error) == {"type", "param", "code", "message"}, error
        return error["message"]

    @property
    def events(self):
        """What a stream of OpenAI's form brought; it ends in [DONE]."""
        parts = [part for part in self.body.decode().split("\n\n") if not part.startswith(":")]  # a comment
        assert parts.pop() == "" and parts.pop() == "data: [DONE]", parts[-1:]
        assert all(part.startswith("data: ") for part in parts)
        return [json.loads(part[6:]) for part in parts]


class Server:
    def __init__(self, yalm, model, *options):
        command = [str(yalm), str(model), "-m", "serve", "--port", "0", *map(str, options)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("listening on"):
                self.port = int(line.rsplit(":", 1)[1])
                break
        else:
            raise AssertionError(f"{command} ends: {self.lines}")
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def connect(self, timeout=HANG):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None, timeout=HANG):
        connection = self.connect(timeout)
        try:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, path, **fields):
        return self.ask("POST", path, json.dumps(fields))

    def complete(self, prompt, **fields):
        """The answer's JSON of a completion that must succeed."""
        answer = self.post("/v1/completions", prompt=prompt, **fields)
        assert answer.status == 200, answer.body
        return answer.json

    def chat(self, content="Hello", **fields):
        answer = self.post("/v1/chat/completions", messages=[{"role": "user", "content": content}], **fields)
        assert answer.status == 200, answer.body
        return answer.json

    def text(self, prompt, **fields):
        return self.complete(prompt, **fields)["choices"][0]["text"]

    def metric(self, name):
        lines = self.get("/metrics").body.decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"yalm_{name} ")))

    def busy(self):
        return sum(slot["is_processing"] for slot in self.get("/slots").json)

    wait_until = staticmethod(wait_until)

    def stop(self, how=signal.SIGTERM):
        """Ends the server by a signal; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(HANG)
        self.reader.join(HANG)
        return code


@pytest.fixture(scope="session")
def start(yalm, fable):
    """Starts servers of the bundled model with further options; they must end well."""
    servers = []

    def start_server(*options, model=fable):
        servers.append(Server(yalm, model, *options))
        return servers[-1]

    yield start_server
    codes = [server.stop() for server in servers]
    assert set(codes) <= {0}, (codes, [server.lines for server in servers])


def with_template(start, folder, template, *options, call=HERMES):
    """A server of the bundled model with a chat template."""
    template = template.replace("CALL", call)
    source = folder / "fable-4m"
    shutil.copytree(ROOT / "models/fable-4m", source)
    config = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    return start("--parallel", 3, *options, model=convert_directory(source, source.parent / "talker.bin"))


@pytest.fixture(scope="session")
def talker(start, tmp_path_factory):
    return with_template(start, tmp_path_factory.mktemp("talker"), TEMPLATE)


@pytest.fixture(scope="session")
def calling(start, tmp_path_factory):
    """Starts one whose template writes a call so."""
    return lambda call: with_template(start, tmp_path_factory.mktemp("calling"), TEMPLATE, call=call)


@pytest.fixture(scope="session")
def seeded_talker(start, tmp_path_factory):
    """Which says the same each time, to clients that name no seed."""
    return with_template(start, tmp_path_factory.mktemp("seeded"), TEMPLATE, "--seed", 5)


@pytest.fixture(scope="session")
def short_talker(start, tmp_path_factory):
    """Whose answers cannot be long."""
    return with_template(start, tmp_path_factory.mktemp("short"), TEMPLATE, "-T", 96)


@pytest.fixture(scope="session")
def harmonist(start, tmp_path_factory):
    """Whose template has gpt-oss's marks."""
    return with_template(start, tmp_path_factory.mktemp("harmonist"), TEMPLATE + "{# <|channel|> <|message|> #}")


@pytest.fixture(scope="session")
def gemmist(start, tmp_path_factory):
    """Whose template has Gemma 4's marks."""
    return with_template(start, tmp_path_factory.mktemp("gemmist"), TEMPLATE + "{# <|channel> #}", call=GEMMA)


@pytest.fixture(scope="session")
def inserter(start, tmp_path_factory):
    """Whose vocabulary has tokens for text in the middle, in the place of its last characters."""
    source = tmp_path_factory.mktemp("inserter") / "fable-4m"
    shutil.copytree(ROOT / "models/fable-4m", source, ignore=shutil.ignore_patterns("tokenizer.model"))
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    pieces = {id: piece for piece, id in tokenizer["model"]["vocab"].items()}
    for id, name in zip(range(4092, 4096), ("fim_prefix", "fim_suffix", "fim_middle", "file_sep")):
        pieces[id] = f"<|{name}|>"
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": id, "content": pieces[id]})
    tokenizer["model"]["vocab"] = {piece: id for id, piece in pieces.items()}
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    return start("--parallel", 2, model=convert_directory(source, source.parent / "inserter.bin"))


@pytest.fixture(scope="session")
def server(start):
    return start("--parallel", 3)
