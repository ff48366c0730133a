// A template's syntax tree, as docs/format.md ("chat") has it: read from the file once, checked, and never changed.
#pragma once
#include <cjson/cJSON.h>

#include "chat/value.h"

// In the order of the table of tree.c.
enum node_kind {
    N_TEMPLATE,
    N_OUTPUT,
    N_DATA,
    N_FOR,
    N_IF,
    N_ASSIGN,
    N_ASSIGN_BLOCK,
    N_MACRO,
    N_FILTER_BLOCK,
    N_SCOPE,
    N_WITH,
    N_BREAK,
    N_CONTINUE,
    N_NAME,
    N_NSREF,
    N_CONST,
    N_TUPLE,
    N_LIST,
    N_DICT,
    N_GETITEM,
    N_GETATTR,
    N_SLICE,
    N_CALL,
    N_KEYWORD,
    N_FILTER,
    N_TEST,
    N_COND,
    N_COMPARE,
    N_OPERAND,
    N_CONCAT,
    N_AND,
    N_OR,
    N_NOT,
    N_NEG,
    N_POS,
    N_ADD,
    N_SUB,
    N_MUL,
    N_DIV,
    N_FLOORDIV,
    N_MOD,
    NODE_KINDS
};

enum { MAX_GROUPS = 5 };

// Children of one role: the body of a loop, the arguments of a call.
struct group {
    int n;
    const struct node **nodes; // (n)
};

struct node {
    enum node_kind kind;
    int line;           // of the template
    int which;          // of a filter or a test: its index
    struct value value; // a name or a constant; none for most
    struct group groups[MAX_GROUPS];
};

struct template
{
    int n;
    struct node *nodes;        // (n), owned: children before their parents, so that the last is the root
    const struct node **links; // owned: what the groups point into
};

// Reads the tree called `where` from `list`, whose strings it borrows. YALM_BAD_MODEL where a node is not of its form.
yalm_status template_read(struct template *template, const cJSON *list, const char *path, const char *where, yalm_error *error);
void template_free(struct template *template);
