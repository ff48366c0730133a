// See stacks.h: parts in any order. What has come is a list, so n parts need no 2^n rules. In the grammar's order each part
// adds a cell; another order makes the higher cells again. Equal lists are the same.
#include "grammar/stacks.h"

// The list with another part, which need not be the highest.
static int add_part(struct automaton *a, int came, int part)
{
    if (came == NO_STACK || a->nodes[came].place <= part)
        return stack_make(a, part, came, NO_STACK);
    int depth = 0;
    for (; came != NO_STACK && a->nodes[came].place > part; came = a->nodes[came].below)
        a->parts[depth++] = a->nodes[came].place;
    for (came = stack_make(a, part, came, NO_STACK); depth > 0; depth--)
        came = stack_make(a, a->parts[depth - 1], came, NO_STACK);
    return came;
}

// Whether any of the parts first..first + n - 1, as they are sorted, may come next. Where the number of parts is limited, what
// must come has its room.
static bool any_left(struct automaton *a, const struct bag *bag, int came, int first, int n)
{
    const int end = first + n;
    int count = 0, n_must = bag->n_must, musts_left = bag->musts[end] - bag->musts[first];
    for (int at = came; at != NO_STACK; at = a->nodes[at].below, count++) {
        const int part = a->nodes[at].place;
        const bool within = bag->ranks[part] >= first && bag->ranks[part] < end;
        n_must -= bag->parts[part].must;
        n -= within;
        musts_left -= within && bag->parts[part].must;
    }
    a->work_left -= count;
    return (bag->most >= 0 && count + 1 + n_must > bag->most ? musts_left : n) > 0;
}

// The parts that may come next: those that are sorted together, others one by one. False: there are none. meet: go on with
// them.
static bool choose(struct automaton *a, struct stack_node node, bool meet)
{
    const struct bag *bag = &a->grammar->bags[a->grammar->elements[node.place].index];
    int count = 0, n_must = bag->n_must;
    bool any = bag->n_sorted > 0 && any_left(a, bag, node.came, 0, bag->n_sorted);
    if (any && meet)
        stack_meet(a, stack_make(a, bag->root, node.below, node.came));
    if (bag->n_sorted == bag->n || (any && !meet))
        return any;
    for (int at = node.came; at != NO_STACK; at = a->nodes[at].below)
        n_must -= bag->parts[a->parts[count++] = a->nodes[at].place].must;
    for (int i = 0, left = count; i < bag->n && !a->failed; i++) {
        const struct bag_part *part = &bag->parts[i];
        const bool came = left > 0 && a->parts[left - 1] == i;
        while (left > 0 && a->parts[left - 1] == i)
            left--;
        a->work_left--;
        if (bag->ranks[i] >= 0 || (came && !part->again) || a->grammar->rules[part->rule].n == 0 ||
            (bag->most >= 0 && count + 1 + n_must - part->must > bag->most))
            continue;
        any = true;
        if (meet)
            stack_meet_rule(a, part->rule, stack_make(a, node.place + 1 + i, node.below, node.came));
    }
    return any;
}

void bag_choice(struct automaton *a, struct stack_node node)
{
    choose(a, node, true);
}

// Within a bag, before or behind a part: the bag may end, or go on with a separator and a part.
void bag_between(struct automaton *a, struct stack_node node)
{
    const struct bag *bag = &a->grammar->bags[a->grammar->elements[node.place].index];
    int count = 0, n_must = 0;
    for (int at = node.came; at != NO_STACK; at = a->nodes[at].below, count++)
        n_must += bag->parts[a->nodes[at].place].must;
    a->work_left -= count;
    if (n_must == bag->n_must && count >= bag->least)
        stack_meet(a, stack_make(a, node.place + 2 + bag->n, node.below, NO_STACK));
    if (!choose(a, node, false))
        return;
    const int choice = stack_make(a, node.place + 1, node.below, node.came);
    if (count == 0)
        stack_meet(a, choice);
    else
        stack_meet_rule(a, bag->separator, choice);
}

// The byte has come where parts go on with other ones.
void bag_branch(struct automaton *a, struct stack_node node, unsigned char byte)
{
    const struct branch *branch = &a->grammar->branches[a->grammar->elements[node.place].index];
    const struct way *way = a->grammar->ways + branch->way, *end = way + branch->n_ways;
    while (way < end && way->byte != byte)
        way++;
    if (way == end || !any_left(a, &a->grammar->bags[a->grammar->elements[branch->bag].index], node.came, way->first, way->n))
        return;
    if (way->n > 1)
        stack_meet(a, stack_make(a, way->place, node.below, node.came));
    else
        stack_meet(a, stack_make(a, way->place, stack_make(a, branch->bag + 2 + way->part, node.below, node.came), NO_STACK));
}

// A part has come. Those that may come again are listed as far as they have to be counted.
void bag_after(struct automaton *a, struct stack_node node)
{
    const int part = a->grammar->elements[node.place].index, place = node.place - 2 - part;
    const struct bag *bag = &a->grammar->bags[a->grammar->elements[place].index];
    const int most = bag->least > bag->most ? bag->least : bag->most;
    int count = 0;
    for (int at = node.came; at != NO_STACK; at = a->nodes[at].below)
        count++;
    a->work_left -= count;
    if (!bag->parts[part].again || count == 0 || count < most)
        node.came = add_part(a, node.came, part);
    stack_meet(a, stack_make(a, place, node.below, node.came));
}

int bag_room(const struct bag *bag, int room)
{
    const int counted = bag->least > bag->most ? bag->least : bag->most, most = bag->n + (counted > 0 ? counted : 1);
    return most > room ? most : room;
}

int bag_copy(struct automaton *a, const struct stack_node *old, int came)
{
    int n = 0, made = NO_STACK;
    for (; came != NO_STACK; came = old[came].below)
        a->parts[n++] = old[came].place;
    while (n > 0)
        made = stack_make(a, a->parts[--n], made, NO_STACK);
    return made;
}
