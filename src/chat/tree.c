// Reads a syntax tree: a list of nodes, [kind, line, value, [children], …]. Children are named by their places in the list. A
// child stands before its parent, so the tree has no circles, and neither reading nor checking it recurses.

#include "chat/tree.h"

#include <stdlib.h>
#include <string.h>

#include "chat/builtins.h"
#include "model/json.h"

enum {
    MAX_NODES = 200 * 1000,
    MAX_LINKS = 400 * 1000,
    MAX_TREE_DEPTH = 300, // so that evaluation, which does recurse, stays far from RUN_MAX_DEPTH
};

enum value_rule { NOTHING, TEXT, SCALAR };

enum role { STATEMENTS, EXPRESSIONS, ITEMS, TARGETS, NAMES, KEYS, KEYWORDS, OPERANDS, FILTERS, IFS };

// How many children of a role there are; `most` 0 is any number.
struct group_rule {
    enum role role;
    int least, most;
};

#define ONE                                                                                                                    \
    {                                                                                                                          \
        EXPRESSIONS, 1, 1                                                                                                      \
    }
#define MAYBE                                                                                                                  \
    {                                                                                                                          \
        EXPRESSIONS, 0, 1                                                                                                      \
    }
#define ANY                                                                                                                    \
    {                                                                                                                          \
        EXPRESSIONS, 0, 0                                                                                                      \
    }
#define BODY                                                                                                                   \
    {                                                                                                                          \
        STATEMENTS, 0, 0                                                                                                       \
    }

// The kinds of nodes, each with the roles of its children, in order. This is where the format defines them.
static const struct node_rule {
    const char *name;
    enum value_rule value;
    int n_groups;
    struct group_rule groups[MAX_GROUPS];
} rules[NODE_KINDS] = {
    [N_TEMPLATE] = {"template", NOTHING, 1, {BODY}},
    [N_OUTPUT] = {"output", NOTHING, 1, {ANY}},                               // what is written
    [N_DATA] = {"data", TEXT, 0, {{0}}},                                      // text between tags; also an expression
    [N_FOR] = {"for", NOTHING, 5, {{TARGETS, 1, 1}, ONE, BODY, BODY, MAYBE}}, // target, iterated, body, else, condition
    [N_IF] = {"if", NOTHING, 4, {ONE, BODY, {IFS, 0, 0}, BODY}},              // condition, body, elifs, else
    [N_ASSIGN] = {"assign", NOTHING, 2, {{TARGETS, 1, 1}, ONE}},              // target, value
    [N_ASSIGN_BLOCK] = {"assign_block", NOTHING, 3, {{TARGETS, 1, 1}, {FILTERS, 0, 1}, BODY}}, // the body's text, filtered
    [N_MACRO] = {"macro", TEXT, 3, {{NAMES, 0, 0}, ANY, BODY}}, // its name; parameters, defaults of the last of them, body
    [N_FILTER_BLOCK] = {"filter_block", NOTHING, 2, {{FILTERS, 1, 1}, BODY}},
    [N_SCOPE] = {"scope", NOTHING, 1, {BODY}},                     // of variables
    [N_WITH] = {"with", NOTHING, 3, {{TARGETS, 0, 0}, ANY, BODY}}, // targets, their values, body
    [N_BREAK] = {"break", NOTHING, 0, {{0}}},
    [N_CONTINUE] = {"continue", NOTHING, 0, {{0}}},
    [N_NAME] = {"name", TEXT, 0, {{0}}},                // a variable; a target where it is assigned
    [N_NSREF] = {"nsref", TEXT, 1, {{NAMES, 1, 1}}},    // a target: the attribute; the namespace
    [N_CONST] = {"const", SCALAR, 0, {{0}}},            // null, a boolean, an integer, a text or [a float]
    [N_TUPLE] = {"tuple", NOTHING, 1, {{ITEMS, 0, 0}}}, // of names it may be a target
    [N_LIST] = {"list", NOTHING, 1, {ANY}},
    [N_DICT] = {"dict", NOTHING, 2, {ANY, ANY}},                   // keys, values
    [N_GETITEM] = {"getitem", NOTHING, 2, {ONE, {KEYS, 1, 1}}},    // object; key or slice
    [N_GETATTR] = {"getattr", TEXT, 1, {ONE}},                     // attribute; object
    [N_SLICE] = {"slice", NOTHING, 3, {MAYBE, MAYBE, MAYBE}},      // start, stop, step
    [N_CALL] = {"call", NOTHING, 3, {ONE, ANY, {KEYWORDS, 0, 0}}}, // callee, arguments, those by keyword
    [N_KEYWORD] = {"keyword", TEXT, 1, {ONE}},
    [N_FILTER] = {"filter", TEXT, 3, {MAYBE, ANY, {KEYWORDS, 0, 0}}}, // its name; operand (none in a block), arguments
    [N_TEST] = {"test", TEXT, 2, {ONE, ANY}},                         // its name; operand, arguments
    [N_COND] = {"cond", NOTHING, 3, {ONE, ONE, MAYBE}},               // condition, then, else
    [N_COMPARE] = {"compare", NOTHING, 2, {ONE, {OPERANDS, 1, 0}}},   // left, a chain of operands
    [N_OPERAND] = {"operand", TEXT, 1, {ONE}},                        // eq, ne, lt, lteq, gt, gteq, in, notin; right
    [N_CONCAT] = {"concat", NOTHING, 1, {ANY}},                       // joined by ~
    [N_AND] = {"and", NOTHING, 2, {ONE, ONE}},
    [N_OR] = {"or", NOTHING, 2, {ONE, ONE}},
    [N_NOT] = {"not", NOTHING, 1, {ONE}},
    [N_NEG] = {"neg", NOTHING, 1, {ONE}},
    [N_POS] = {"pos", NOTHING, 1, {ONE}},
    [N_ADD] = {"add", NOTHING, 2, {ONE, ONE}},
    [N_SUB] = {"sub", NOTHING, 2, {ONE, ONE}},
    [N_MUL] = {"mul", NOTHING, 2, {ONE, ONE}},
    [N_DIV] = {"div", NOTHING, 2, {ONE, ONE}},
    [N_FLOORDIV] = {"floordiv", NOTHING, 2, {ONE, ONE}},
    [N_MOD] = {"mod", NOTHING, 2, {ONE, ONE}},
};

// A tuple of these is a target only.
static bool has_nsref(const struct node *tuple)
{
    for (int i = 0; i < tuple->groups[0].n; i++)
        if (tuple->groups[0].nodes[i]->kind == N_NSREF)
            return true;
    return false;
}

static bool fits(enum role role, const struct node *node)
{
    const enum node_kind kind = node->kind;
    switch (role) {
    case STATEMENTS:
        return kind >= N_OUTPUT && kind <= N_CONTINUE && kind != N_DATA;
    case EXPRESSIONS:
        return (kind >= N_NAME && kind != N_NSREF && kind != N_KEYWORD && kind != N_OPERAND && kind != N_SLICE &&
                !(kind == N_TUPLE && has_nsref(node))) ||
               kind == N_DATA;
    case ITEMS:
        return kind == N_NSREF || fits(EXPRESSIONS, node);
    case TARGETS:
        if (kind != N_TUPLE)
            return kind == N_NAME || kind == N_NSREF;
        for (int i = 0; i < node->groups[0].n; i++)
            if (node->groups[0].nodes[i]->kind != N_NAME && node->groups[0].nodes[i]->kind != N_NSREF)
                return false;
        return true;
    case NAMES:
        return kind == N_NAME;
    case KEYS:
        return kind == N_SLICE || fits(EXPRESSIONS, node);
    case KEYWORDS:
        return kind == N_KEYWORD;
    case OPERANDS:
        return kind == N_OPERAND;
    case FILTERS:
        return kind == N_FILTER;
    default:
        return kind == N_IF;
    }
}

// Checks what one group's form cannot say of another. NULL where all is well, else what is wrong.
static const char *disagrees(struct node *node)
{
    const struct group *g = node->groups;
    switch (node->kind) {
    case N_DICT:
    case N_WITH:
        return g[0].n == g[1].n ? NULL : "as many values as keys are needed";
    case N_MACRO:
        return g[1].n <= g[0].n ? NULL : "more defaults than parameters";
    case N_OPERAND:
        return operator_find(node->value) >= 0 ? NULL : "an unknown operator";
    case N_FILTER:
        node->which = filter_find(node->value);
        return node->which >= 0 ? NULL : "a filter that this version does not know";
    case N_TEST:
        node->which = test_find(node->value);
        return node->which >= 0 ? NULL : "a test that this version does not know";
    default:
        return NULL;
    }
}

struct tree_reading {
    struct template *template;
    const char *path, *where;
    int *depths; // (n)
    int n_links; // so far
    int index;   // of the node that is read
    yalm_error *error;
};

static yalm_status wrong(const struct tree_reading *r, const char *what)
{
    return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: '%s': node %d: %s", r->path, r->where, r->index, what);
}

static yalm_status read_value(const struct tree_reading *r, struct node *node, const cJSON *item)
{
    const enum value_rule rule = rules[node->kind].value;
    int64_t number;
    node->value = none();
    if (rule == NOTHING || (rule == SCALAR && cJSON_IsNull(item)))
        return cJSON_IsNull(item) ? YALM_OK : wrong(r, "a value where none must stand");
    if (cJSON_IsString(item)) {
        node->value = string_of(item->valuestring);
        return YALM_OK;
    }
    if (rule == SCALAR && cJSON_IsBool(item))
        node->value = boolean(cJSON_IsTrue(item));
    else if (rule == SCALAR && json_integer_in(item, -JSON_MAX_INTEGER + 1, JSON_MAX_INTEGER - 1, &number))
        node->value = integer(number);
    else if (rule == SCALAR && cJSON_IsArray(item) && cJSON_IsNumber(item->child) && item->child->next == NULL)
        node->value = real(item->child->valuedouble);
    else
        return wrong(r, rule == SCALAR ? "no constant that a template has" : "no text where one must stand");
    return YALM_OK;
}

static yalm_status read_group(struct tree_reading *r, struct node *node, int which, const cJSON *list)
{
    const struct group_rule *rule = &rules[node->kind].groups[which];
    struct group *group = &node->groups[which];
    if (!cJSON_IsArray(list))
        return wrong(r, "no list of children where one must stand");
    group->nodes = r->template->links + r->n_links;
    for (const cJSON *c = list->child; c; c = c->next) {
        int64_t child;
        if (!json_integer_in(c, 0, r->index - 1, &child))
            return wrong(r, "a child that is no node before it");
        const struct node *node_of = &r->template->nodes[child];
        if (!fits(rule->role, node_of))
            return wrong(r, "a child of a kind that cannot stand there");
        if (r->depths[child] >= MAX_TREE_DEPTH)
            return wrong(r, "nested too deeply");
        if (r->depths[r->index] <= r->depths[child])
            r->depths[r->index] = r->depths[child] + 1;
        if (r->n_links == MAX_LINKS)
            return wrong(r, "too many children in all");
        r->template->links[r->n_links++] = node_of;
        group->n++;
    }
    if (group->n < rule->least || (rule->most && group->n > rule->most))
        return wrong(r, "the wrong number of children");
    return YALM_OK;
}

static yalm_status read_node(struct tree_reading *r, const cJSON *item)
{
    struct node *node = &r->template->nodes[r->index];
    const cJSON *kind = cJSON_IsArray(item) ? item->child : NULL;
    const cJSON *line = kind ? kind->next : NULL, *value = line ? line->next : NULL;
    int64_t number;
    if (!cJSON_IsString(kind) || !value || !json_integer_in(line, 0, INT32_MAX, &number))
        return wrong(r, "expected [kind, line, value, children]");
    int k = 0;
    while (k < NODE_KINDS && strcmp(rules[k].name, kind->valuestring) != 0)
        k++;
    if (k == NODE_KINDS)
        return wrong(r, "a kind that this version does not know");
    *node = (struct node){.kind = (enum node_kind)k, .line = (int)number};
    yalm_status status = read_value(r, node, value);
    const cJSON *list = value->next;
    for (int i = 0; i < rules[k].n_groups && status == YALM_OK; i++) {
        status = list ? read_group(r, node, i, list) : wrong(r, "lists of children are missing");
        list = list ? list->next : NULL;
    }
    if (status == YALM_OK && list)
        status = wrong(r, "more than a node of its kind has");
    const char *bad = status == YALM_OK ? disagrees(node) : NULL;
    return bad ? wrong(r, bad) : status;
}

// Refuses a break outside of a loop, and a root that cannot be one.
static yalm_status check_root(const struct tree_reading *r)
{
    const struct template *t = r->template;
    if (t->nodes[t->n - 1].kind != N_TEMPLATE)
        return wrong(r, "the last node is no template");
    return YALM_OK;
}

static int count_links(const cJSON *list)
{
    int n = 0;
    for (const cJSON *node = list->child; node; node = node->next)
        for (const cJSON *part = node->child; part; part = part->next)
            for (const cJSON *child = cJSON_IsArray(part) ? part->child : NULL; child && n < MAX_LINKS; child = child->next)
                n++;
    return n;
}

yalm_status template_read(struct template *template, const cJSON *list, const char *path, const char *where, yalm_error *error)
{
    *template = (struct template){0};
    struct tree_reading r = {.template = template, .path = path, .where = where, .error = error};
    const int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    if (n == 0 || n > MAX_NODES)
        return error_set(error, YALM_BAD_MODEL, "%s: metadata: '%s': found %d nodes, expected a list of 1 to %d", path, where,
                         n, MAX_NODES);
    template->nodes = calloc((size_t)n, sizeof *template->nodes);
    template->links = malloc(((size_t)count_links(list) + 1) * sizeof *template->links);
    r.depths = calloc((size_t)n, sizeof *r.depths);
    yalm_status status = template->nodes && template->links && r.depths
                             ? YALM_OK
                             : error_set(error, YALM_NO_MEMORY, "%s: no memory for '%s'", path, where);
    for (const cJSON *item = list->child; item && status == YALM_OK; item = item->next) {
        status = read_node(&r, item);
        template->n = ++r.index;
    }
    if (status == YALM_OK) {
        r.index = n - 1;
        status = check_root(&r);
    }
    free(r.depths);
    if (status != YALM_OK)
        template_free(template);
    return status;
}

void template_free(struct template *template)
{
    free(template->nodes);
    free(template->links);
    *template = (struct template){0};
}
