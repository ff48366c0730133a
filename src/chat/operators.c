// Operators: arithmetic on numbers, strings and lists, comparisons, slices.

#include "chat/operators.h"

#include <math.h>

#include "chat/builtins.h"
#include "chat/strings.h"

static struct value refuse(struct run *run, const char *operation, struct value a, struct value b)
{
    const struct value missing = a.kind == V_UNDEFINED ? a : b;
    if (missing.kind == V_UNDEFINED)
        return no_value(run, "'%s' is undefined", missing.text ? missing.text : "an operand");
    return no_value(run, "unsupported operand type(s) for %s: '%s' and '%s'", operation, type_name(a), type_name(b));
}

static struct value whole(struct run *run, bool overflow, int64_t result)
{
    if (overflow)
        run_fail(run, "an integer that 64 bits do not hold");
    return integer(result);
}

static struct value divide(struct run *run, enum node_kind operation, struct value a, struct value b)
{
    if (as_real(b) == 0)
        return no_value(run, "division by zero");
    if (operation == N_DIV)
        return real(as_real(a) / as_real(b));
    if (a.kind == V_FLOAT || b.kind == V_FLOAT) {
        const double x = as_real(a), y = as_real(b), quotient = floor(x / y);
        double rest = fmod(x, y);
        if (rest != 0 && (rest < 0) != (y < 0))
            rest += y;
        return real(operation == N_MOD ? rest : quotient);
    }
    const int64_t x = as_integer(a), y = as_integer(b);
    if (y == -1) // the smallest integer has no opposite
        return operation == N_MOD ? integer(0) : signed_number(run, a, true);
    const bool down = x % y != 0 && (x % y < 0) != (y < 0);
    return integer(operation == N_MOD ? x % y + (down ? y : 0) : x / y - down);
}

static struct value on_numbers(struct run *run, enum node_kind operation, struct value a, struct value b)
{
    int64_t result;
    if (operation >= N_DIV)
        return divide(run, operation, a, b);
    if (a.kind == V_FLOAT || b.kind == V_FLOAT) {
        const double x = as_real(a), y = as_real(b);
        return real(operation == N_ADD ? x + y : operation == N_SUB ? x - y : x * y);
    }
    const int64_t x = as_integer(a), y = as_integer(b);
    const bool overflow = operation == N_ADD   ? __builtin_add_overflow(x, y, &result)
                          : operation == N_SUB ? __builtin_sub_overflow(x, y, &result)
                                               : __builtin_mul_overflow(x, y, &result);
    return whole(run, overflow, result);
}

static struct value add_lists(struct run *run, const struct list *a, const struct list *b)
{
    const struct value sum = new_list(run, a->flavour, a->n + b->n);
    for (size_t i = 0; i < a->n && !failed(run); i++)
        list_add(run, sum.list, a->items[i]);
    for (size_t i = 0; i < b->n && !failed(run); i++)
        list_add(run, sum.list, b->items[i]);
    return sum;
}

static struct value multiply(struct run *run, struct value a, struct value b)
{
    const struct value times = a.kind == V_INT || a.kind == V_BOOL ? a : b, of = times.kind == a.kind ? b : a;
    if (times.kind != V_INT && times.kind != V_BOOL)
        return refuse(run, "*", a, b);
    if (of.kind == V_STRING)
        return repeat(run, of, as_integer(times));
    if (of.kind != V_LIST || of.list->flavour > TUPLE)
        return refuse(run, "*", a, b);
    const struct value all = new_list(run, of.list->flavour, of.list->n);
    for (int64_t t = 0; of.list->n > 0 && t < as_integer(times) && !failed(run); t++)
        for (size_t i = 0; i < of.list->n && !failed(run); i++)
            list_add(run, all.list, of.list->items[i]);
    return all;
}

struct value arithmetic(struct run *run, enum node_kind operation, struct value a, struct value b)
{
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%"};
    if (failed(run))
        return undefined(NULL);
    if (is_number(a) && is_number(b))
        return on_numbers(run, operation, a, b);
    if (operation == N_ADD && a.kind == V_STRING && b.kind == V_STRING)
        return join_two(run, a, b);
    if (operation == N_ADD && a.kind == V_LIST && b.kind == V_LIST && a.list->flavour == b.list->flavour &&
        a.list->flavour <= TUPLE)
        return add_lists(run, a.list, b.list);
    if (operation == N_MUL)
        return multiply(run, a, b);
    return refuse(run, signs[operation - N_ADD], a, b);
}

struct value signed_number(struct run *run, struct value number, bool negative)
{
    if (number.kind == V_FLOAT)
        return real(negative ? -number.real : number.real);
    if (!is_number(number)) {
        if (number.kind == V_UNDEFINED)
            return refuse(run, "-", number, number);
        run_fail(run, "bad operand type for unary %s: '%s'", negative ? "-" : "+", type_name(number));
        return number;
    }
    const int64_t x = as_integer(number);
    return negative ? whole(run, x == INT64_MIN, x == INT64_MIN ? 0 : -x) : integer(x);
}

struct value slice_list(struct run *run, const struct list *list, struct value start, struct value stop, struct value step)
{
    int64_t b[3];
    if (!slice_bounds(run, start, stop, step, (int64_t)list->n, b))
        return undefined(NULL);
    const struct value part = new_list(run, list->flavour == TUPLE ? TUPLE : LIST, 8);
    for (int64_t i = b[0]; (b[2] > 0 ? i < b[1] : i > b[1]) && !failed(run); i += b[2])
        list_add(run, part.list, list->items[i]);
    return part;
}

// ------------------------------------------------------------------------------------------ comparisons

static const char *const operators[] = {"eq", "ne", "lt", "lteq", "gt", "gteq", "in", "notin"};

int operator_find(struct value name)
{
    for (int i = 0; i < (int)(sizeof operators / sizeof *operators); i++)
        if (is_text(name, operators[i]))
            return i;
    return -1;
}

bool operator_apply(struct run *run, int which, struct value a, struct value b)
{
    if (which < 2)
        return equal(run, a, b) == (which == 0);
    if (which >= 6)
        return contains(run, b, a) == (which == 6);
    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED) {
        refuse(run, "a comparison", a, b);
        return false;
    }
    const int order = compare(run, a, b);
    if (order == 2)
        return false;
    return which == 2 ? order < 0 : which == 3 ? order <= 0 : which == 4 ? order > 0 : order >= 0;
}
