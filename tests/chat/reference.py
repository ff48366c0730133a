"""Chat templates by jinja2, set up as transformers does (utils/chat_template_utils.py), for what the evaluator is compared
with.

tests/golden/compare_chat_templates.py makes the same comparison with transformers itself.
"""

import json
from datetime import datetime

import jinja2
from jinja2 import ext, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

REASONING = ("reasoning_content", "thinking", "reasoning")


class Generation(ext.Extension):
    tags = frozenset(("generation",))

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def prepared(message):
    message = {key: value for key, value in message.items() if value is not None}
    reasoning = next((message[key] for key in REASONING if message.get(key) is not None), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


class Namespace(jinja2.utils.Namespace):
    def __init__(self, *args, **kwargs):
        for name in dict(*args, **kwargs):
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, *args, **kwargs)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
environment.filters["tojson"] = tojson
environment.filters["from_json"] = json.loads  # of templates that expect more than transformers has
environment.globals["raise_exception"] = raise_exception
environment.globals["namespace"] = Namespace
environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)


def render(text, variables):
    """The text, or None where the template refuses the variables."""
    given = {"tools": None, "documents": None, "add_generation_prompt": False, **variables}
    given["messages"] = [prepared(message) for message in given["messages"]]
    try:
        return environment.from_string(text).render(given)
    except (
        jinja2.TemplateError,
        TypeError,
        ValueError,
        AttributeError,
        KeyError,
        IndexError,
        ArithmeticError,
        RecursionError,
    ):
        return None
