"""What is learnt of how models write calls, from small templates of each form, and what is read of it however it is cut."""

import json

import pytest
from reading import CALLS, NESTED, TOOLS, learn_and_read, written, wrong

# Around a message; around its calls; each call. Of a call: `f` is its function, `c` itself.
TURN = (
    "{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{%- if m.tool_calls %}OPEN{% for c in m.tool_calls %}{% set f = c.function %}CALL"
    "{{- BETWEEN if not loop.last }}{% endfor %}CLOSE{% endif %}<|end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|assistant|>{% endif %}"
)
JSON = '{{ \'{"name": "\' + f.name + \'", "arguments": \' }}{{ f.arguments | tojson }}{{ "}" }}'
TAGS = (
    "{% for k, v in f.arguments | items %}{{ KEY }}{{ k }}{{ IS }}"
    "{% if v is string %}{{ v }}{% else %}{{ v | tojson }}{% endif %}{{ END }}{% endfor %}"
)


def tags(key, middle, end):
    return TAGS.replace("KEY", repr(key)).replace("IS", repr(middle)).replace("END", repr(end))


def template(call, between="", opened="", closed=""):
    text = TURN.replace("OPEN", f"{{{{ {opened!r} }}}}").replace("CLOSE", f"{{{{ {closed!r} }}}}")
    return text.replace("CALL", call).replace("BETWEEN", repr(between))


LITERALS = (
    '{% macro lit(v) %}{% if v is string %}<"">{{ v }}<"">{% elif v is mapping %}{{ "{" }}{% for k, w in v | items %}{{ k }}:'
    '{{ lit(w) }}{{ "," if not loop.last }}{% endfor %}{{ "}" }}{% elif v is iterable %}[{% for w in v %}'
    '{{ lit(w) }}{{ "," if not loop.last }}'
    "{% endfor %}]{% else %}{{ v | tojson }}{% endif %}{% endmacro %}"
    "<call>call:{{ f.name }}{% set all = lit(f.arguments) %}{{ all }}<end_call>"
)
PYTHON = (
    "{{ f.name }}({% for k, v in f.arguments | items %}{{ k }}={% if v is string %}"
    "\"{{ v | replace('\\\\', '\\\\\\\\') | replace('\"', "
    "'\\\\\"') | replace('\\n', '\\\\n') }}\"{% else %}{{ v | string }}{% endif %}{{ ', ' if not loop.last }}{% endfor %})"
)
# Its name; the template; the mark that calls begin with; the kind of arguments.
FORMS = {
    "objects": (template("<tool_call>\n" + JSON + "\n</tool_call>", "\n"), "<tool_call>", "json"),
    "objects in a list": (template(JSON, ", ", "[TOOLS][", "]"), "[TOOLS]", "json"),
    "objects in lines": (template(JSON, "\n", "<calls>\n", "\n</calls>"), "<calls>", "json"),
    "objects with an id": (
        template(
            '{"id": "{{ c.id }}", "tool_name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}',
            ",\n",
            "<do>[",
            "]</do>",
        ),
        "<do>",
        "json",
    ),
    "objects alone": (template(JSON, "\n"), "", "json"),
    "objects in a fence": (template(JSON, ",\n", "Action:\n```json\n[\n", "\n]```"), "Action:", "json"),
    "a name as a key": (
        template('{"{{ f.name }}": {{ f.arguments | tojson }}}', ", ", "<|tools|>[", "]<|done|>"),
        "<|tools|>",
        "json",
    ),
    "a name before JSON": (
        template("[CALL]{{ f.name }}[ID]{{ c.id }}[ARGS]{{ f.arguments | tojson }}"),
        "[CALL]",
        "json",
    ),
    "a name with a number": (
        template(
            "<|call|>functions.{{ f.name }}:{{ loop.index0 }}<|args|>{{ f.arguments | tojson }}<|/call|>",
            "",
            "<|calls|>",
            "<|/calls|>",
        ),
        "<|calls|>",
        "json",
    ),
    "the id is the name": (
        template("<|call|>{{ c.id }}<|args|>{{ f.arguments | tojson }}<|/call|>", "", "<|calls|>", "<|/calls|>"),
        "<|calls|>",
        "json",
    ),
    "no text before a call": (
        template("<tool_call>" + JSON + "</tool_call>").replace(
            "{{ m.content }}", "{{ m.content if not m.tool_calls }}"
        ),
        "<tool_call>",
        "json",
    ),
    "JSON as a text": (template("<function={{ f.name }}>{{ f.arguments + '' }}</function>"), "<function=", "json"),
    "lines of tags": (
        template(
            "<tool_call>\n<function={{ f.name }}>\n"
            + tags("<parameter=", ">\n", "\n</parameter>\n")
            + "</function>\n</tool_call>",
            "\n",
        ),
        "<tool_call>",
        "tagged",
    ),
    "keys and values": (
        template("<tool_call>{{ f.name }}\n" + tags("<key>", "</key>\n<value>", "</value>\n") + "</tool_call>", "\n"),
        "<tool_call>",
        "tagged",
    ),
    "attributes": (
        template(
            '<invoke name="{{ f.name }}">\n' + tags('<parameter name="', '">', "</parameter>\n") + "</invoke>\n",
            "",
            "<use>\n",
            "</use>",
        ),
        "<use>",
        "tagged",
    ),
    "types": (
        template(
            '<invoke name="{{ f.name }}">\n'
            + tags('<param name="', '" string="TYPE">', "</param>\n").replace(
                "TYPE", "' ~ ('true' if v is string else 'false') ~ '"
            )
            + "</invoke>\n",
            "",
            "<use>\n",
            "</use>",
        ),
        "<use>",
        "tagged",
    ),
    "literals": (template(LITERALS), "<call>", "literal"),
    "Python": (template(PYTHON, ", ", "<|start|>[", "]<|stop|>"), "<|start|>", "literal"),
}


@pytest.mark.parametrize("name", FORMS)
def test_calls_are_read_as_they_are_rendered(name):
    text, mark, kind = FORMS[name]
    (form,) = learn_and_read(text, [])
    assert (form["known"], form["mark"], form["arguments"]) == (True, mark, kind), form
    asked = [(*written(text, calls, form["as_text"]), TOOLS) for calls in CALLS.values()]
    for (calls, found), (_, said, _) in zip(zip(CALLS.values(), learn_and_read(text, asked)[1:]), asked):
        assert wrong(found, calls) is None, f"{said!r}: {found} {form}"
    # Behind text and before it, and of tools that nobody offers.
    prompt, said, _ = asked[0]
    first = TOOLS[:1]
    around = f"Well.\n\n{said}" if mark else said
    behind, other = learn_and_read(text, [(prompt, around, first), (prompt, said, TOOLS[1:])])[1:]
    assert [call[0] for call in behind["calls"]] == ["get_weather"] and behind["content"].strip() == (
        "Well." if mark else ""
    )
    assert (behind["cut"], other["cut"], other["calls"]) == (-1, -1, [])
    assert other["content"] == said.removeprefix(prompt)


TAGGED = FORMS["lines of tags"][0]


def one(body, tools=TOOLS, text=TAGGED):
    return learn_and_read(text, [("", body, tools)])[1]


def test_values_between_tags_have_the_schemas_types():
    call = "<tool_call>\n<function=book_table>\n{}</function>\n</tool_call>"
    values = {
        "name": "7",
        "guests": "7",
        "outside": "True",
        "at": "{'lat': 1, \"x\": [None]}",
        "wishes": '["a"]',
        "unknown": "no JSON",
    }
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    found = one(call.format(body))
    meant = {
        "name": "7",
        "guests": 7,
        "outside": True,
        "at": {"lat": 1, "x": [None]},
        "wishes": ["a"],
        "unknown": "no JSON",
    }
    assert json.loads(found["calls"][0][1]) == meant and found["cut"] == -1
    # Lines that a model leaves out, and text that the template would quote.
    body = "<parameter=name>a b</parameter><parameter=at><![CDATA[</parameter>]]></parameter>"
    assert json.loads(one(call.format(body))["calls"][0][1]) == {"name": "a b", "at": "</parameter>"}
    assert one(call.format(""))["calls"] == [["book_table", "{}", True]]


def test_calls_that_break_off():
    said = "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n"
    found = one(said + "oops")
    assert (
        found["calls"] == [["get_weather", '{"city": "Ulm"}', True]]
        and found["content"] == "oops"
        and found["cut"] == -1
    )
    assert one(said)["calls"] == [["get_weather", '{"city": "Ulm"', False]]
    assert one("<tool_call>\nwell")["content"] == "<tool_call>\nwell"


def test_near_misses_fit_a_tool_or_are_text():
    text = FORMS["objects"][0]
    good = json.dumps({"name": "book_table", "arguments": NESTED})
    for said, content in (
        (good, ""),
        (good[:-1], ""),
        (f"So: {good}", "So:"),
        (f"So:\n```json\n{good}\n```", "So:"),
        (f"```\n{good}\n```\nDone.", "\n\nDone."),
    ):
        found = one(said, text=text)
        assert (
            [call[0] for call in found["calls"]] == ["book_table"]
            and found["cut"] == -1
            and found["content"].strip() == content.strip()
        )
    # A mark within one begins another.
    broken = one(good[:30] + "<tool_call>" + good + "</tool_call>", text=text)
    assert (len(broken["calls"]), broken["content"], broken["cut"]) == (1, good[:30], -1)
    # A text with a line break, which JSON writes otherwise.
    code = one('{"name": "run_code", "arguments": {"code": "a\nb"}}', text=text)
    assert json.loads(code["calls"][0][1]) == {"code": "a\nb"}
    for bad in (
        good.replace("book_table", "Alice"),
        good.replace("4", '"four"'),
        good.replace('"guests"', '"guest"'),
        good.replace("-1.5", '"-1.5"'),
        good.replace("007", "7"),
        good.replace("4", "11"),
        good[:-2],
        '{"a": 1}',
        '```python\nprint({"name": 1})\n```',
        "a { b } ``` c",
    ):
        found = one(bad, text=text)
        assert found["calls"] == [] and found["content"] == bad and found["cut"] == -1


def test_forms_that_templates_only_name():
    for mark, said in {
        "<tool_call>": '<tool_call>{"name": "get_weather", "arguments": {"city": "Ulm"}}</tool_call>',
        "functools[": 'functools[{"name": "get_weather", "arguments": {"city": "Ulm"}}]',
        "<|tool_list_start|>": "<|tool_call_start|>[get_weather(city='Ulm')]<|tool_call_end|>",
        "<|tool|>": '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Ulm"}}]<|/tool_call|>',
        "<｜tool▁calls▁begin｜>": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"city": "Ulm"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    }.items():
        found = one(said, text="{# " + mark + " #}{{ messages[0].content }}")
        assert found["calls"] == [["get_weather", '{"city": "Ulm"}', True]] and found["content"] == "", found
    assert not learn_and_read("{{ messages[0].content }}", [])[0]["known"]


def test_a_call_that_the_prompt_begins():
    text = (
        "{%- for m in messages %}<|{{ m.role }}|>{% if m.tool_calls %}{% for c in m.tool_calls %}>>>{{ c.function.name }}\n"
        "{{ c.function.arguments | tojson }}{% endfor %}{% elif m.role == 'assistant' %}>>>all\n{{ m.content }}{% else %}"
        "{{ m.content }}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>>>>{% endif %}"
    )
    found = learn_and_read(
        text, [("<|assistant|>>>>", 'get_weather\n{"city": "Ulm"}>>>get_weather\n{"city": "b"}', TOOLS)]
    )[1]
    assert [call[1] for call in found["calls"]] == ['{"city": "Ulm"}', '{"city": "b"}'] and found["cut"] == -1
