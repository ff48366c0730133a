"""Chat templates: the engine's evaluator beside jinja2, on everything that a template may use."""

from datetime import datetime

import pytest
from conversations import CLOCK, MESSAGES, WEATHER, conversations
from evaluator import TOKENS, USER, chat_of, evaluate, one
from reference import render

VALUES = {
    "n": 3,
    "x": 2.5,
    "whole": 1.0,
    "big": 1e22,
    "small": 1.5e-7,
    "minus": -7,
    "yes": True,
    "no": False,
    "nothing": None,
    "text": "  Straße, naïve 🦙 'quoted' \"twice\"\t\n ",
    "word": "banana",
    "list": [3, 1, 2, 1],
    "words": ["pear", "Apple", "fig", "apple"],
    "mixed": [1, "1", 1.0, None, True, [], {}, "it's", 'say "x"', "both ' and \"", "\u200b\n\\"],
    "dict": {"b": 1, "a": [1, {"c": "d"}], "Z": None, "items": "member", "é": "ü"},
    "people": [
        {"name": "Ann", "age": 30, "at": {"town": "Bern"}},
        {"name": "bob", "age": 25, "at": {"town": "Ulm"}, "admin": True},
        {"name": "Cid", "age": 30},
    ],
    "json": '{"a": [1, 2.0, "x\\u00e9\\ud83e\\udd99", null, true], "b": {}}',
}
EXPRESSIONS = """
n + 1; n - 5; n * 2; n / 2; n // 2; n % 2; minus // 2; minus % 3; x + n; x * 2; -x; +n; -minus; 7.5 // 2; -7.5 % 2; 2 * word
word * 0; list * 2; yes + 1; whole; big; small; 1e100; 0.1; 1e16; 123456789.125; 1e15; -0.0; 5e-324
n == 3.0; yes == 1; 1 != true; nothing == none; word < 'c'; list < [3, 2]; 1 < 2 < 3; 1 < 3 < 2; n >= 3; n <= 2; n > 2.9
[1, 2] == (1, 2); dict == dict; [1, [2]] == [1.0, [2]]; undef == undef; none == undef; "a" == 1
'nan' in word; 'x' not in word; 1 in list; 9 in list; 'b' in dict; 'q' not in dict; 'x' in undef; 3 in range(5); n in [1, 3]
('a', 1) in [('a', 1)]
n and 0; n or 0; nothing or 'x'; not n; not list; not []; undef and 1; undef or 'u'; not undef
1 if n else 2; 1 if no else 2; 1 if no; (1 if no) is defined
text; text | trim; text | length; text | upper; text | lower; word | capitalize; text | string; n | string | length
text | replace('a', 'A'); text | replace('a', 'A', 1); 'a<b' | replace('', '-')
word[0]; word[-1]; word[1:4]; word[:-2]; word[::-1]; word[::2]; word[10:]; word[-100:2]; word[4:1:-1]; text[3:9]; text[-5:]
word[99]; word['x']; list[0]; list[-1]; list[9]; list[1:]; list[::-1]; list[:-1]; list[-2:]; (1, 2, 3)[1:]; list[yes]; dict['b']
dict.b; dict.a[1].c; dict['nope']; dict.nope is defined
list; words; mixed; dict; (1,); (); (1, 'a'); [none, true, undef]; {}; {'a': {1: 2.0}}; range(3); range(1, 9, 3) | list
range(5, 0, -2) | list; range(0) | list; mixed | string
dict | tojson; mixed | tojson; mixed | tojson(ensure_ascii=true); dict | tojson(indent=2)
dict | tojson(indent=2, sort_keys=true); dict | tojson(separators=(',', ':')); [] | tojson(indent=4); {} | tojson(indent=1)
dict | tojson(indent='\\t'); (1, 2) | tojson; whole | tojson; {1: 2, none: 3, true: 4, 2.5: 5} | tojson; text | tojson
json | from_json; (json | from_json).a[3] is none; '[1' | from_json
undef | length; undef | default('d'); n | default('d'); '' | default('d'); '' | default('d', true); none | default('d', true)
undef | default; none | d('x'); false | default('z', boolean=true)
list | join; list | join(', '); words | join('-'); people | join(', ', attribute='name'); word | join('.'); undef | join(',')
dict | join(',')
list | sort; list | sort(reverse=true); words | sort; words | sort(case_sensitive=true)
people | sort(attribute='age') | map(attribute='name') | list
people | sort(attribute='name', reverse=true) | map(attribute='name') | join; list | min; list | max; words | min
[] | min is defined; list | unique | list; words | unique | list
people | unique(attribute='age') | map(attribute='name') | list; words | unique(true) | list
dict | items | list; dict | dictsort; dict | dictsort(true); {'x': 2, 'y': 1} | dictsort(by='value')
{'x': 2, 'y': 1} | dictsort(false, 'key', true); dict.items() | list; dict.keys() | list; dict.values() | list
undef | items | list; dict.items(); dict.keys(); dict['items']; dict.items | string | length > 0; word | items | list
words | map('upper') | list; people | map(attribute='at.town', default='?') | list; people | map(attribute='admin') | list
words | map('replace', 'p', 'P') | list; words | map('nope') | list; nothing | map('upper') | list
people | selectattr('admin') | list | length; people | selectattr('age', 'equalto', 30) | map(attribute='name') | list
people | rejectattr('age', '==', 30) | map(attribute='name') | list; people | rejectattr('at') | list | length
people | selectattr('at.town', 'defined') | list | length; list | select('odd') | list; list | reject('in', [1, 2]) | list
list | select | list; words | select('string') | list; nothing | selectattr('x') | list; list | select('gt', 1) | list
list | select('divisibleby', 3) | list
words | first; words | last; list | reverse | list; word | reverse; [] | first is defined; list | count; dict | list
word | list; '12' | int; ' -7 ' | int; '4.9' | int; 'x' | int; 'x' | int(5); 2.9 | int; true | int; none | int(9)
text | indent; 'a\\nb\\n\\nc' | indent; 'a\\nb' | indent(2, true); 'a\\n\\nb' | indent(2, blank=true)
'a\\nb' | indent('> ', first=true); '' | indent(2, true); 'a\\n' | indent(3)
text.strip(); text.lstrip(); text.rstrip(); word.strip('ab'); word.lstrip('b'); word.rstrip('an'); word.strip('')
'\\u00a0x\\u3000'.strip(); text.split(); text.split(' '); 'a,b,,c'.split(','); 'a,b,,c'.split(',', 1); ' a  b c '.split(none, 1)
''.split(); ''.split(','); 'aXXbXXc'.split('XX', 5); 'a'.split(''); 'a,b,c'.rsplit(',', 1); 'a,b'.rsplit(',')[0]
'one\\ntwo\\r\\nthree\\n'.splitlines(); ''.splitlines(); word.startswith('ba'); word.startswith(('x', 'ban'))
word.endswith('na'); word.endswith('b'); word.replace('an', 'AN'); word.replace('an', 'AN', 1); word.replace('', '.')
word.upper(); 'ÀÉ'.lower(); 'straße'.upper(); 'hello world'.title(); 'HELLO'.capitalize(); ', '.join(words); ''.join([])
', '.join([1]); word.find('n'); word.find('z'); text.find('ï'); word.count('a'); word.count('ana'); word.removeprefix('ba')
word.removesuffix('na'); '123'.isdigit(); ''.isdigit(); '1a'.isdigit()
'{} and {}'.format(1, 'b'); '{0}{1}{0}'.format('a', 2); '{x}-{{}}'.format(x=none); '{}'.format(); '{'.format(1)
dict.get('b'); dict.get('q'); dict.get('q', 'other'); dict.get('Z', 'other'); dict.copy() == dict; dict.items.x is defined
n.real2 is defined; word.nope is defined; word.nope
1 ~ 'a' ~ none ~ undef ~ 2.0 ~ [1]; 'a' 'b'; "x" ~ (n + 1)
undef; undef is defined; n is defined; undef is undefined; nothing is none; n is none; n is number; yes is number
yes is boolean; n is boolean; n is integer; x is float; word is string; dict is mapping; list is mapping; list is sequence
word is sequence; dict is sequence; n is sequence; dict.items() is sequence; list is iterable; n is iterable
dict.items() is iterable; undef is iterable; yes is true; n is true; no is false; nothing is false; n is odd; n is even
n is divisibleby 3; n is divisibleby(2); n is eq 3; n is ne 3; n is lt 4; n is ge 4; n is in [3]; word is not string
n is not none; range is callable; n is callable
undef.x; undef[0]; undef + 1; undef(); none + 1; 'a' + 1; n(); n < 'a'; undef < 1; [1] + (1,); 1 / 0; 1 % 0; 1 // 0; -'a'
n | items | list; n | length; 5 | join; {[1]: 2}; word.split(1); none.x is defined; none['x'] is defined; n[0] is defined
[1] < [none]; 'x' in n; 5 in word
'<a>' | safe + '<b>'; ('<' | safe) ~ '>'; '&' + ('x' | safe); ('a b' | safe).split(' ')[0] + '<'
raise_exception('no way'); range(200000); range('a'); range(1, 2, 0); namespace(1); dict(a=1, b=[2]) | tojson; namespace(a=1).a
namespace({'q': 5}).q; namespace().zip is defined; strftime_now('%Y'); bos_token ~ eos_token; messages[0].content; tools
documents; add_generation_prompt
"""
STATEMENTS = [
    (
        "{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
        "{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}"
    ),
    (
        "{% for i in [] %}x{% else %}none{% endfor %}|{% for i in list if i > 1 %}{{ loop.index }}:{{ i }}{{ loop.last }}"
        " {% else %}no{% endfor %}|{% for i in list if i > 9 %}x{% else %}no{% endfor %}"
    ),
    (
        "{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}{% for k in dict %}{{ k }}{% endfor %}"
        "{% for c in 'añ🦙' %}[{{ c }}]{% endfor %}"
    ),
    "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}-{{ b }} {% endfor %}{% for a, b in [(1, 2, 3)] %}x{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    (
        "{% for i in list %}{% for j in words %}{% if loop.index > 2 %}{% break %}{% endif %}{{ i }}{{ j }}{{ loop.first }}"
        "{% endfor %}{{ loop.index }}{% endfor %}"
    ),
    "{% for i in list %}{{ loop.changed(i) }}{{ loop.cycle('a', 'b') }}{% endfor %}{{ loop is defined }}",
    "{% set x = 1 %}{% for i in list %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    (
        "{% set ns = namespace(x=1, seen=[]) %}{% for i in list %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}"
        "{{ ns.nope is defined }}{{ ns.seen }}"
    ),
    "{% set ns = namespace(a=1) %}{% set ns.b, c = 2, 3 %}{{ ns.a }}",
    "{% set a, b = 1, 'two' %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}{% set (p, q) = [5, 6] %}{{ p * q }}",
    "{% set a = 1 %}{% if a %}{% set a = 2 %}{% set fresh = 3 %}{% endif %}{{ a }}{{ fresh }}",
    (
        "{% if n == 1 %}a{% elif n == 2 %}b{% elif n == 3 %}c{% else %}d{% endif %}{% if undef %}x{% endif %}{% if no %}"
        "x{% elif no %}y{% else %}z{% endif %}"
    ),
    (
        "{% set body %}  {{ n }} <b> {% set hidden = 1 %}{% endset %}[{{ body }}]{{ hidden is defined }}"
        "{% set t | upper | trim %} abc {% endset %}{{ t }}{{ body is string }}"
    ),
    "{% filter upper | replace('A', '_') %}banana {{ n }}{% endfilter %}{% filter trim %}  x  {% endfilter %}",
    (
        "{% macro f(a, b=2, c='x' ~ a) %}{{ a }},{{ b }},{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, c=4) }}"
        "{{ f(b=5, a=6) }}{{ f() }}{{ f(1) | length }}"
    ),
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    (
        "{% macro depth(x, n) %}{% if x is mapping %}{% for k, v in x.items() %}{{ '  ' * n }}{{ k }}\n{{ depth(v, n + 1) }}"
        "{% endfor %}{% else %}{{ '  ' * n }}{{ x }}\n{% endif %}{% endmacro %}{{ depth({'a': {'b': {'c': 1}}, 'd': 2}, 0) }}"
    ),
    (
        "{% set who = 'outer' %}{% macro f() %}{{ who }}{% set who = 'inner' %}{{ who }}{{ n }}{% endmacro %}{{ f() }}"
        "{{ who }}{% set who = 'later' %}{{ f() }}"
    ),
    "{% for i in list %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}{{ g is defined }}",
    "{% with a = 1, b = n %}{{ a + b }}{% set a = 9 %}{{ a }}{% endwith %}{{ a is defined }}",
    "{% generation %}{{ n }}{% set g = 1 %}{% endgeneration %}{{ g is defined }}",
    (
        "{%- if true -%}   a  {%- endif -%}\n  {{- ' b ' -}}  \n  {% if true %}\n  line\n  {% endif %}"
        "\n{# comment #}\n  {#- c -#} end\n"
    ),
    "    {% for i in list %}\n    {{ i }}\n    {% endfor %}\n{% raw %}{{ raw }}{% endraw %}",
    (
        "{% set loop_like = messages | selectattr('role', 'equalto', 'user') | list %}{{ loop_like | length }}"
        "{{ loop_like[0]['content'] }}"
    ),
    "{{ {'a': 1}.a }}{{ {'items': 1}['items'] }}{{ [1, 2, 3][-1] }}{{ 'abc'[1] }}{{ 'x'.upper() | lower }}",
    (
        "{% set content = '<think>a</think>b' %}{{ content.split('</think>')[-1].lstrip('\\n') }}"
        "|{{ content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}"
    ),
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set x.y = 1 %}",
    "{% set n.y = 1 %}",
    "{% macro loops(n) %}{{ loops(n + 1) }}{% endmacro %}{{ loops(0) }}",
    "{{ messages | tojson }}{% for m in messages %}{{ m.role ~ m['content'] }}{% endfor %}",
]


def expressions():
    lines = [line for line in EXPRESSIONS.splitlines() if line]
    return [expression.strip() for line in lines for expression in line.split("; ")]


@pytest.mark.parametrize("first", range(0, len(expressions()), 40))
def test_expressions(first):
    for expression in expressions()[first : first + 40]:
        text = "{{ " + expression + " }}"
        variables = {"messages": USER, **VALUES, **TOKENS}
        expected, found = render(text, variables), one(text, VALUES)
        if expected is None:
            assert found.startswith("error 2 chat template, line 1: "), expression
        else:
            assert found == expected, expression


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements(text):
    variables = {"messages": USER, **VALUES, **TOKENS}
    expected, found = render(text, variables), one(text, VALUES)
    if expected is None:
        assert found.startswith("error 2 chat template, line 1: ")
    else:
        assert found == expected


CHATML = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content or '' %}
        {%- if message.reasoning_content is defined and loop.index0 > ns.last %}
            {{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' + content.split('</think>')[-1].lstrip('\\n') }}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function if call.function else call %}
            {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{% endif %}
    {%- elif not loop.first %}
        {{- raise_exception('unexpected role ' ~ message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""


def test_conversations():
    asked = list(conversations())
    found = evaluate(chat_of(CHATML), [variables for _, variables in asked])
    assert len(found) == len(asked) > 100
    refused = 0
    for (what, variables), text in zip(asked, found):
        expected = render(CHATML, {**TOKENS, **variables})
        refused += expected is None
        assert text.startswith("error 2 ") if expected is None else text == expected, what
    assert 0 < refused < len(asked) / 4


def test_template_for_tools():
    chat = chat_of("plain", tool_use="with tools")
    variables = [{"messages": USER}, {"messages": USER, "tools": [CLOCK]}, {"messages": USER, "tools": None}]
    assert evaluate(chat, variables) == ["plain", "with tools", "plain"]
    assert evaluate(chat_of("plain"), variables) == ["plain"] * 3


def test_time():
    assert one("{{ strftime_now('%d %B %Y, %j %%') }}") == datetime.now().strftime("%d %B %Y, %j %%")


def test_lists_and_dicts_change():
    """transformers' sandbox forbids what some templates do; here it works, as those who wrote them meant it."""
    assert (
        one("{% set q = [1, 2] %}{% set _ = q.append(3) %}{{ q }}{{ q.pop(0) }}{{ q.pop() }}{{ q }}")
        == "[1, 2, 3]13[2]"
    )
    assert one("{% set d = {'a': 1} %}{{ d.pop('a') }}{{ d.pop('b', 5) }}{{ d }}") == "15{}"
    assert one("{{ [].pop() }}") == "error 2 chat template, line 1: pop index out of range"


def test_many_keys():
    """A dict's look-ups do not take longer as it grows."""
    keys = {f"key {i}": i for i in range(50000)}
    assert one("{{ d | length }}{{ d['key 49999'] }}{{ 'key 50000' in d }}", {"d": keys}) == "5000049999False"


def test_reasoning_and_nulls():
    messages = [{"role": "assistant", "content": None, "reasoning": "r", "x": 1}]
    text = "{{ messages | tojson }}"
    assert one(text, {"messages": messages}) == render(text, {"messages": messages})
    assert MESSAGES["reasoning apart"] and WEATHER
