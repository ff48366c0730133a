"""The chat template of a model as a syntax tree, in the form of docs/format.md ("chat").

The library jinja2 parses it, set up as transformers does. What the engine's evaluator cannot do is refused by name
and line; the names here are those of src/chat/.
"""

from typing import Optional

import jinja2
from jinja2 import ext, nodes

FILTERS = frozenset(
    "tojson from_json string trim lower upper capitalize replace indent int default d safe length count list items join "
    "first last reverse map"
    " select reject selectattr rejectattr sort dictsort min max unique".split()
)
TESTS = frozenset(
    "defined undefined none true false boolean integer float number string mapping sequence iterable callable odd even "
    "divisibleby"
    " eq equalto == ne != lt lessthan < le <= gt greaterthan > ge >= in".split()
)
METHODS = frozenset(
    "split rsplit splitlines strip lstrip rstrip startswith endswith replace format lower upper capitalize title join find "
    "count"
    " removeprefix removesuffix isdigit get items keys values copy pop append changed cycle".split()
)
MISSING_GLOBALS = frozenset(("lipsum", "cycler", "joiner"))  # of Jinja's; no chat template has them
MACRO_VARIABLES = frozenset(("varargs", "kwargs", "caller"))
TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
MAX_NODES, MAX_DEPTH = 200_000, 300
MAX_INTEGER = 1 << 53


class Generation(ext.Extension):
    """{% generation %} marks what the model wrote; for rendering it is a block with a scope of its own."""

    tags = frozenset(("generation",))

    def parse(self, parser: object) -> object:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class Unsupported(Exception):
    """A template that is not evaluated; the text names what, and the line."""


def read_chat(templates: dict, settings: dict) -> Optional[dict]:
    """The metadata's member "chat"; `templates` has texts by name. None where the model has no template."""
    if "default" not in templates:
        return None
    chat = {"tokens": special_tokens(settings)}
    try:
        used = {name: text for name, text in templates.items() if name in ("default", "tool_use")}
        chat["templates"] = {name: syntax_tree(text) for name, text in used.items()}
    except Unsupported as error:
        chat["refused"] = str(error)
    return chat


def special_tokens(settings: dict) -> dict:
    """bos_token and the like, by the names that templates call them by."""
    found = {}
    for name in TOKENS:
        value = settings.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str) and storable(value):
            found[name] = value
    return found


def storable(text: str) -> bool:
    """JSON without NULs and halves of surrogate pairs is what the file can hold."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def syntax_tree(text: str) -> list:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])
    try:
        root = environment.parse(text)
    except jinja2.TemplateSyntaxError as error:
        raise Unsupported(f"line {error.lineno}: {error.message}") from None
    except RecursionError:
        raise Unsupported("nested too deeply") from None
    except ValueError:  # Python reads 4,300 digits at most
        raise Unsupported("a number of too many digits is not supported") from None
    writer = TreeWriter()
    try:
        writer.add(root)
    except RecursionError:
        raise Unsupported("nested too deeply") from None
    return writer.tree


class TreeWriter:
    """Appends nodes to `tree`, children before their parents."""

    def __init__(self):
        self.tree = []
        self.depths = []
        self.line = 1  # of the last node that knows its own
        self.loops = 0
        self.macros = 0

    def refuse(self, node: object, what: str) -> Unsupported:
        return Unsupported(f"line {node.lineno or self.line}: {what} is not supported")

    def put(self, node: object, kind: str, value: object = None, *groups: list) -> int:
        depth = 1 + max((self.depths[child] for group in groups for child in group), default=0)
        if depth > MAX_DEPTH or len(self.tree) >= MAX_NODES:
            raise self.refuse(node, f"more than {MAX_DEPTH} levels of nesting or {MAX_NODES} nodes")
        if isinstance(value, str) and not storable(value):
            raise self.refuse(node, "a NUL or half of a surrogate pair in a text")
        self.line = node.lineno or self.line
        self.tree.append([kind, self.line, value, *groups])
        self.depths.append(depth)
        return len(self.tree) - 1

    def all(self, children: list) -> list:
        return [self.add(node) for node in children]

    def maybe(self, node: object) -> list:
        return [] if node is None else [self.add(node)]

    def add(self, node: object) -> int:
        kind = type(node).__name__
        method = getattr(self, f"add_{kind.lower()}", None)
        if method is not None:
            return method(node)
        if kind in PLAIN:
            name, fields = PLAIN[kind]
            return self.put(node, name, None, *(self.field(getattr(node, field)) for field in fields))
        raise self.refuse(node, f"'{kind}'")

    def field(self, value: object) -> list:
        return self.all(value) if isinstance(value, list) else self.maybe(value)

    # ---- statements

    def add_templatedata(self, node: object) -> int:
        return self.put(node, "data", node.data)

    def add_for(self, node: object) -> int:
        if node.recursive:
            raise self.refuse(node, "a recursive loop")
        target, walked, condition = self.add(node.target), self.add(node.iter), self.maybe(node.test)
        self.loops += 1
        body = self.all(node.body)
        self.loops -= 1
        return self.put(node, "for", None, [target], [walked], body, self.all(node.else_), condition)

    def add_break(self, node: object) -> int:
        if not self.loops:
            raise self.refuse(node, f"'{type(node).__name__.lower()}' outside of a loop")
        return self.put(node, type(node).__name__.lower())

    add_continue = add_break

    def add_assignblock(self, node: object) -> int:
        return self.put(node, "assign_block", None, [self.add(node.target)], self.maybe(node.filter), self.inside(node))

    def add_filterblock(self, node: object) -> int:
        return self.put(node, "filter_block", None, [self.add(node.filter)], self.inside(node))

    def add_scope(self, node: object) -> int:
        return self.put(node, "scope", None, self.inside(node))

    def inside(self, node: object) -> list:
        """The body of a block that a loop outside cannot be left from."""
        loops, self.loops = self.loops, 0
        body = self.all(node.body)
        self.loops = loops
        return body

    def add_macro(self, node: object) -> int:
        self.macros += 1
        names, defaults, body = self.all(node.args), self.all(node.defaults), self.inside(node)
        self.macros -= 1
        return self.put(node, "macro", node.name, names, defaults, body)

    # ---- expressions

    def add_name(self, node: object) -> int:
        if node.ctx == "load" and (node.name in MISSING_GLOBALS or (self.macros and node.name in MACRO_VARIABLES)):
            raise self.refuse(node, f"'{node.name}'")
        return self.put(node, "name", node.name)

    def add_nsref(self, node: object) -> int:
        return self.put(node, "nsref", node.attr, [self.put(node, "name", node.name)])

    def add_const(self, node: object) -> int:
        value = node.value
        if isinstance(value, float):
            if value - value != 0:
                raise self.refuse(node, f"the number {value}")
            return self.put(node, "const", [value])
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= MAX_INTEGER:
            raise self.refuse(node, f"the number {value}")
        if value is not None and not isinstance(value, (bool, int, str)):
            raise self.refuse(node, f"a constant of type '{type(value).__name__}'")
        return self.put(node, "const", value)

    def add_dict(self, node: object) -> int:
        keys = [self.add(pair.key) for pair in node.items]
        return self.put(node, "dict", None, keys, [self.add(pair.value) for pair in node.items])

    def add_getattr(self, node: object) -> int:
        return self.put(node, "getattr", node.attr, [self.add(node.node)])

    def add_call(self, node: object) -> int:
        self.refuse_stars(node)
        if isinstance(node.node, nodes.Getattr) and node.node.attr not in METHODS:
            raise self.refuse(node, f"the method '{node.node.attr}'")
        return self.put(node, "call", None, [self.add(node.node)], self.all(node.args), self.all(node.kwargs))

    def add_keyword(self, node: object) -> int:
        return self.put(node, "keyword", node.key, [self.add(node.value)])

    def add_filter(self, node: object) -> int:
        self.refuse_stars(node)
        if node.name not in FILTERS:
            raise self.refuse(node, f"the filter '{node.name}'")
        return self.put(node, "filter", node.name, self.maybe(node.node), self.all(node.args), self.all(node.kwargs))

    def add_test(self, node: object) -> int:
        self.refuse_stars(node)
        if node.name not in TESTS or node.kwargs:
            raise self.refuse(node, f"the test '{node.name}'" + (" with arguments by name" if node.kwargs else ""))
        return self.put(node, "test", node.name, [self.add(node.node)], self.all(node.args))

    def refuse_stars(self, node: object) -> None:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise self.refuse(node, "a call with '*' or '**'")

    def add_operand(self, node: object) -> int:
        return self.put(node, "operand", node.op, [self.add(node.expr)])


# Nodes whose children are all there is to them: the kind's name in the file, and the fields of jinja2's class.
PLAIN = {
    "Template": ("template", ("body",)),
    "Output": ("output", ("nodes",)),
    "If": ("if", ("test", "body", "elif_", "else_")),
    "Assign": ("assign", ("target", "node")),
    "With": ("with", ("targets", "values", "body")),
    "Tuple": ("tuple", ("items",)),
    "List": ("list", ("items",)),
    "Getitem": ("getitem", ("node", "arg")),
    "Slice": ("slice", ("start", "stop", "step")),
    "CondExpr": ("cond", ("test", "expr1", "expr2")),
    "Compare": ("compare", ("expr", "ops")),
    "Concat": ("concat", ("nodes",)),
    **{name: (name.lower(), ("left", "right")) for name in ("And", "Or", "Add", "Sub", "Mul", "Div", "Mod")},
    "FloorDiv": ("floordiv", ("left", "right")),
    **{name: (name.lower(), ("node",)) for name in ("Not", "Neg", "Pos")},
}
