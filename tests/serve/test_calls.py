"""Calls that must come, and calls that the model begins: in the template's own form, and such as the tools allow."""

import json
import re

import jsonschema
import pytest

TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": {"type": "object", **schema}}}
    for name, schema in {
        "count": {
            "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "up": {"type": "boolean"}},
            "required": ["n"],
            "additionalProperties": False,
        },
        "say": {
            "properties": {
                "tone": {"type": "string", "enum": ["low", "high"]},
                "at": {"$ref": "#/$defs/place"},
                "word": {"type": "string", "maxLength": 8},
            },
            "required": ["tone", "at"],
            "$defs": {"place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
        },
        "nothing": {"properties": {}},
    }.items()
]
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
OBJECT = """{{ 'MARK {"name": "' + f.name + '", "arguments": ' }}{{ f.arguments | tojson }}{{ '}' }}"""
TAGS = """<tool_call>{{ "\\n" }}<function={{ f.name }}>
{% for k, v in f.arguments | items %}<parameter={{ k }}>
{{ v }}
</parameter>
{% endfor %}</function>
</tool_call>"""
KEYS = """<do>{{ f.name }}{% for k, v in f.arguments | items %}<k>{{ k }}</k><v>{{ v }}</v>{% endfor %}</do>"""
LITERALS = """<call>{{ f.name }}{ {%- for k, v in f.arguments | items %}{{ k }}:
{%- if v is string %}<|"|>{{ v }}<|"|>{% else %}{{ v }}{% endif %}{{ "," if not loop.last }}{% endfor -%} }</call>"""
MISTRAL = "[CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}"
FORMS = {"object": OBJECT.replace("MARK", "<call>"), "tags": TAGS, "keys": KEYS, "literals": LITERALS, "name": MISTRAL}


@pytest.fixture(scope="module", params=FORMS)
def caller(request, calling):
    return calling(FORMS[request.param])


@pytest.fixture(scope="module")
def begins_often(calling):
    """What begins a call is a word that this model writes all the time."""
    return calling(OBJECT.replace("MARK", "the"))


def check(answer):
    """The calls, each such as its tool's schema has it; but for the last, where the text was cut off."""
    calls = answer["message"].get("tool_calls", [])
    for call in calls[: len(calls) - (answer["finish_reason"] == "length")]:
        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMAS[call["function"]["name"]])
    return [call["function"]["name"] for call in calls]


def allow(mode, *names):
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_some_tools_are_allowed(talker):
    """The prompt shows all of them, so it stays read; calls are of those that may come."""
    hello = [{"role": "user", "content": "Hello"}]
    prompts = {
        talker.post("/apply-template", messages=hello, tools=TOOLS, tool_choice=choice).json["prompt"]
        for choice in ("auto", allow("auto", "nothing"), allow("required", "nothing", "say"))
    }
    assert len(prompts) == 1
    choice = allow("required", "nothing")
    for seed in range(3):
        answer = talker.chat(tools=TOOLS, tool_choice=choice, seed=seed, max_tokens=200)["choices"][0]
        assert set(check(answer)) == {"nothing"}
    flat = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "nothing"}]}
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    answer = talker.post("/v1/responses", input="Hello", tools=tools, tool_choice=flat, max_output_tokens=200).json
    assert {item["name"] for item in answer["output"]} == {"nothing"}
    for choice, message in (
        (allow("auto"), "'tool_choice' allows 0 tools"),
        (allow("auto", *["say"] * 1025), "'tool_choice' allows 1025 tools"),
        (allow("auto", "fly"), "'tool_choice' allows 'fly'"),
        (allow("never", "say"), "'tool_choice': expected"),
    ):
        answer = talker.post("/v1/chat/completions", messages=hello, tools=TOOLS, tool_choice=choice)
        assert answer.status == 400 and message in answer.error


@pytest.mark.parametrize("seed", range(3))
def test_calls_that_must_come(caller, seed):
    fields = {"tools": TOOLS, "temperature": 1.2, "max_tokens": 300, "seed": seed}
    whole = set()
    for choice, names in (
        ("required", set(SCHEMAS)),
        ({"type": "function", "function": {"name": "say"}}, {"say"}),
        ({"type": "function", "function": {"name": "nothing"}}, {"nothing"}),
    ):
        answer = caller.chat(tool_choice=choice, **fields)["choices"][0]
        called = check(answer)
        assert set(called) <= names, answer
        if answer["finish_reason"] != "length":  # this model may write a text without an end
            assert answer["finish_reason"] == "tool_calls" and called and not answer["message"]["content"], answer
        whole |= set(called)
    assert "nothing" in whole
    fields["tools"] = TOOLS[::2]
    one = caller.chat(tool_choice="required", parallel_tool_calls=False, **fields)["choices"][0]
    assert len(check(one)) == 1
    several = caller.chat(tool_choice="required", **fields)["choices"][0]
    assert 1 <= len(check(several)) <= 8 and not several["message"]["content"]


def test_calls_that_the_model_begins(begins_often):
    """From the mark on they follow the schemas, text comes before and between, and the stream tells the same."""
    n = 0
    for seed in range(12):
        fields = {"tools": TOOLS, "temperature": 1.5, "max_tokens": 250, "seed": seed}
        answer = begins_often.chat(**fields)["choices"][0]
        n += len(check(answer))
        assert " the {" not in (answer["message"]["content"] or "") or answer["finish_reason"] == "length"
    assert n > 12
    free = begins_often.chat(**{**fields, "tool_choice": "none"})["choices"][0]["message"]
    assert free["content"] and "tool_calls" not in free


def test_many_tools_that_take_long(begins_often):
    """What reading them takes is bounded by the request: the rest may have any arguments, and the answer says so."""
    hard = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a|b)*a(a|b){200}$"}}}
    tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": hard}} for i in range(14)]
    tools[7]["function"]["parameters"] = {
        "type": "object",
        "properties": [{"type": "string"}],
    }  # a list: nothing is said
    fields = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 1}
    answer = begins_often.post("/v1/chat/completions", tools=tools, **fields)
    assert answer.status == 200, answer.body
    assert re.search(r"tools: the schema of f0, f1[f0-9, ]*( and \d+ more)?\"", answer.headers["Warning"])
    assert begins_often.post("/completion", prompt="a", n_predict=1, json_schema={"type": "integer"}).status == 200


def test_what_a_schema_has_and_cannot_be_held(begins_often):
    """It does not refuse the request: such a member may be anything, and the answer says so; but for a tool that is strict."""
    tool = json.loads(json.dumps(TOOLS[0]))
    tool["function"]["parameters"]["properties"]["n"] = {"type": "integer", "$ref": "elsewhere.json"}
    fields = {"tools": [tool], "temperature": 1.5, "max_tokens": 60}
    fields["messages"] = [{"role": "user", "content": "?"}]
    for seed, choice in enumerate(["auto", "auto", "required", "required"]):  # the second time it is kept
        answer = begins_often.post("/v1/chat/completions", **fields, tool_choice=choice, seed=seed)
        assert answer.status == 200 and "tools: the schema of count" in answer.headers["Warning"]
    assert answer.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "count"
    tool["function"]["strict"] = True
    assert begins_often.post("/v1/chat/completions", **fields).status == 200
    answer = begins_often.post("/v1/chat/completions", **fields, tool_choice="required")
    assert answer.status == 400 and "'tools', 'count'" in answer.error


@pytest.mark.parametrize("parameters", [{}, None, {"properties": {"n": {"enum": [5]}}, "required": ["n"]}], ids=str)
def test_arguments_are_an_object(talker, parameters):
    """Where the schema does not say so; without a schema an empty one."""
    tools = [{"type": "function", "function": {"name": "count", "parameters": parameters}}]
    for seed in range(3):
        answer = talker.chat(tools=tools, tool_choice="required", parallel_tool_calls=False, seed=seed, max_tokens=300)
        choice = answer["choices"][0]
        text = choice["message"]["tool_calls"][0]["function"]["arguments"]
        assert text.lstrip().startswith("{")
        if choice["finish_reason"] == "tool_calls":
            assert parameters == {} or json.loads(text) == ({"n": 5} if parameters else {})


def test_marks_come_as_the_models_own_tokens(calling):
    """<s> is a control token of this model: where a call must come it is written so, and behind the call, too."""
    marked = calling(OBJECT.replace("MARK", "<s>").replace("'}'", "'}<s>'"))
    fields = {"tools": TOOLS[:1], "temperature": 1.5, "max_tokens": 250, "logprobs": True}
    for seed in range(4):
        answer = marked.chat(tool_choice="required", parallel_tool_calls=False, seed=seed, **fields)["choices"][0]
        tokens = [token["token"] for token in answer["logprobs"]["content"]]
        assert check(answer) == ["count"] and tokens[0] == "<s>" and tokens.count("<s>") == 2, tokens
    # And where the model writes one itself, a call follows.
    answers = [marked.chat(seed=seed, logit_bias={1: 9}, **fields)["choices"][0] for seed in range(8)]
    assert sum(len(check(answer)) for answer in answers) >= 4


@pytest.mark.parametrize("path", ["/v1/responses", "/api/chat", "/v1/messages"])
def test_calls_are_held_by_every_route(begins_often, path):
    question, n = [{"role": "user", "content": "?"}], 0
    for seed in range(6):
        drawing = {"temperature": 1.5, "seed": seed}
        if path == "/v1/responses":
            tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
            answer = begins_often.post(path, input="?", tools=tools, max_output_tokens=250, **drawing).json
            found = [item for item in answer["output"] if item["type"] == "function_call"]
            found = found[: len(found) - (answer["status"] == "incomplete")]
            calls = [(item["name"], json.loads(item["arguments"])) for item in found]
        elif path == "/api/chat":
            options = {"num_predict": 250, **drawing}
            answer = begins_often.post(path, messages=question, tools=TOOLS, options=options, stream=False).json
            found = [call["function"] for call in answer["message"].get("tool_calls", [])]
            calls = [(call["name"], call["arguments"]) for call in found]
            calls = calls[: len(calls) - (answer["done_reason"] == "length")]
        else:
            tools = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
            answer = begins_often.post(path, messages=question, tools=tools, max_tokens=250, **drawing).json
            calls = [(item["name"], item["input"]) for item in answer["content"] if item["type"] == "tool_use"]
            calls = calls[: len(calls) - (answer["stop_reason"] == "max_tokens")]
        for name, arguments in calls:
            jsonschema.validate(arguments, SCHEMAS[name])
        n += len(calls)
    assert n > 2


@pytest.mark.parametrize("name", ['f"x', "a b", "x\n", "<tool>", "", "f(x)"])
def test_names_that_no_form_can_hold(begins_often, name):
    tools = [{"type": "function", "function": {"name": name}}]
    answer = begins_often.post("/v1/chat/completions", messages=[{"role": "user", "content": "?"}], tools=tools)
    assert answer.status == 400 and "'tools'" in answer.error


def test_schemas_that_lead_back_in_many_ways(begins_often):
    """Whether a near miss fits is found in bounded time."""
    again = {"$ref": "#/$defs/a"}
    parameters = {"type": "object", "properties": {"n": again}, "$defs": {"a": {"anyOf": [again, again, again]}}}
    tools = [{"type": "function", "function": {"name": "count", "parameters": parameters}}]
    grammar = 'root ::= "{\\"name\\": \\"count\\", \\"arguments\\": {\\"n\\": 5}}"'
    answer = begins_often.chat(tools=tools, grammar=grammar, max_tokens=90)["choices"][0]["message"]
    assert answer["content"] and "tool_calls" not in answer
