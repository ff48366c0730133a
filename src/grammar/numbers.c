// See numbers.h.
#include "grammar/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/pattern.h"

enum { MAX_DIGITS = 400, MAX_REMAINDERS = 4000 };

const struct dfa *numbers_all(struct pool *pool, bool integers)
{
    return pattern_read(pool, integers ? "^-?(0|[1-9][0-9]{0,19})$" : "^-?(0|[1-9][0-9]{0,19})(\\.[0-9]{1,20})?$");
}

// The digits of |value|, as few as tell it from its neighbours.
static void spell(double value, char *whole, char *fraction)
{
    char text[40], digits[24] = "";
    int precision = 0;
    do
        snprintf(text, sizeof text, "%.*e", precision, fabs(value));
    while (strtod(text, NULL) != fabs(value) && ++precision < 17);
    const int exponent = atoi(strchr(text, 'e') + 1);
    int n = 0;
    for (const char *c = text; *c != 'e'; c++)
        if (*c != '.')
            digits[n++] = *c;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    int n_whole = 0, n_fraction = 0;
    for (int i = exponent < 0 ? exponent : 0; i < n || i <= exponent; i++) {
        const char digit = i < 0 || i >= n ? '0' : digits[i];
        if (i > exponent)
            fraction[n_fraction++] = digit;
        else
            whole[n_whole++] = digit;
    }
    if (exponent < 0) { // 0.00x: the zeros before the first digit, the first of them before the point
        n_whole = 0;
        n_fraction = 0;
        for (int i = exponent + 1; i < n; i++)
            fraction[n_fraction++] = i < 0 ? '0' : digits[i];
        whole[n_whole++] = '0';
    }
    whole[n_whole] = fraction[n_fraction] = 0;
    if (strcmp(fraction, "0") == 0)
        fraction[0] = 0;
}

static void edge(struct pool *pool, struct dfa *dfa, int from, char first, char last, int to)
{
    struct dfa_state *state = &dfa->states[from];
    if (state->edges == NULL)
        state->edges = pool_take(pool, 16 * sizeof *state->edges);
    if (first <= last)
        state->edges[state->n++] = (struct dfa_edge){(uint32_t)first, (uint32_t)last, to};
}

// Edges over the digits: to three states, by how a digit compares.
static void digit_edges(struct pool *pool, struct dfa *dfa, int from, char digit, const int to[3])
{
    edge(pool, dfa, from, '0', (char)(digit - 1), to[0]);
    edge(pool, dfa, from, digit, digit, to[1]);
    edge(pool, dfa, from, (char)(digit + 1), '9', to[2]);
}

// Compares the number's size with the bound's, from the state `base` on: behind i digits before the point, 3 i + how the digits
// compare; then the point's: below, above, and equal for j digits behind it. How much of it is known when the number ends is
// `ways`.
static int compare_sizes(struct pool *pool, struct dfa *dfa, int base, const char *whole, const char *fraction, int ways)
{
    const int n = (int)strlen(whole), m = (int)strlen(fraction);
    const int longer = base + 3 * (n + 1), below = longer + 1, above = longer + 2, equal = longer + 3;
    for (int i = 0; i <= n; i++)
        for (int c = 0; c < 3; c++) {
            const int at = base + 3 * i + c, next = base + 3 * (i + 1);
            const int order = i < n || c == 0 ? BELOW : c == 2 ? ABOVE : m > 0 ? BELOW : EQUAL;
            if (i > 0) {
                edge(pool, dfa, at, '.', '.', order == ABOVE ? above : i == n && c == 1 ? equal : below);
                dfa->states[at].accepts = ways & order;
            }
            if (i == n)
                edge(pool, dfa, at, '0', '9', longer);
            else if (c == 1)
                digit_edges(pool, dfa, at, whole[i], (const int[]){next, next + 1, next + 2});
            else
                edge(pool, dfa, at, '0', '9', next + c);
        }
    edge(pool, dfa, longer, '.', '.', above);
    edge(pool, dfa, longer, '0', '9', longer);
    edge(pool, dfa, below, '0', '9', below);
    edge(pool, dfa, above, '0', '9', above);
    dfa->states[longer].accepts = dfa->states[above].accepts = ways & ABOVE;
    dfa->states[below].accepts = ways & BELOW;
    for (int j = 0; j <= m; j++) {
        digit_edges(pool, dfa, equal + j, j < m ? fraction[j] : '0', (const int[]){below, equal + (j < m ? j + 1 : j), above});
        dfa->states[equal + j].accepts = ways & (j < m ? BELOW : EQUAL);
    }
    return equal + m + 1;
}

struct dfa *numbers_compare(struct pool *pool, double bound, int ways)
{
    char whole[MAX_DIGITS], fraction[MAX_DIGITS];
    struct dfa *dfa = pool_take(pool, sizeof *dfa);
    spell(bound, whole, fraction);
    dfa->states = pool_take(pool, (2 * (3 * strlen(whole) + strlen(fraction) + 12) + 2) * sizeof *dfa->states);
    // The sign chooses: among numbers of the bound's sign their sizes tell, in reverse below zero; of the other all or none.
    const int reversed = (ways & EQUAL) | (ways & BELOW ? ABOVE : 0) | (ways & ABOVE ? BELOW : 0);
    const int all = BELOW | EQUAL | ABOVE;
    const int positive = bound >= 0 ? ways : ways & ABOVE ? all : 0, negative = bound <= 0 ? reversed : ways & BELOW ? all : 0;
    const int second = compare_sizes(pool, dfa, 2, whole, fraction, positive);
    dfa->n = compare_sizes(pool, dfa, second, whole, fraction, negative);
    edge(pool, dfa, 0, '-', '-', second + 1);
    for (int i = 0; i < dfa->states[3].n; i++) // as at the start of the first, where nothing is unequal
        dfa->states[0].edges[dfa->states[0].n++] = dfa->states[3].edges[i];
    return dfa_trim(pool, dfa);
}

struct dfa *numbers_multiples(struct pool *pool, double step)
{
    char whole[MAX_DIGITS], fraction[MAX_DIGITS];
    if (!(step > 0))
        pool_refuse(pool, "'multipleOf': expected a number above 0");
    spell(step, whole, fraction);
    const int places = (int)strlen(fraction);
    char digits[2 * MAX_DIGITS];
    snprintf(digits, sizeof digits, "%s%s", whole, fraction);
    const unsigned long size = strtoul(digits, NULL, 10);
    if (size > MAX_REMAINDERS || size * (unsigned long)(places + 2) > DFA_MAX_STATES || places > 9)
        pool_refuse(pool, "'multipleOf': expected a number of few digits");
    // Behind the point a layer is a digit further. State 1 + layer n + r: the remainder r; the last is for zeros.
    const int n = (int)size, end = 1 + n * (places + 2);
    struct dfa *dfa = pool_take(pool, sizeof *dfa);
    dfa->n = end + 1;
    dfa->states = pool_take(pool, (size_t)dfa->n * sizeof *dfa->states);
    edge(pool, dfa, 0, '-', '-', 1);
    for (char digit = '0'; digit <= '9'; digit++)
        edge(pool, dfa, 0, digit, digit, 1 + (digit - '0') % n);
    for (int layer = 0; layer <= places + 1; layer++)
        for (int r = 0; r < n; r++) {
            const int at = 1 + layer * n + r;
            unsigned long rest = (unsigned long)r;
            for (int k = layer > 0 ? layer - 1 : 0; k < places; k++)
                rest = rest * 10 % size;
            dfa->states[at].accepts = rest == 0;
            if (layer == 0)
                edge(pool, dfa, at, '.', '.', at + n);
            for (char digit = '0'; layer <= places && digit <= '9'; digit++)
                edge(pool, dfa, at, digit, digit, 1 + (layer + (layer > 0)) * n + (r * 10 + digit - '0') % n);
            if (layer > places && rest == 0)
                edge(pool, dfa, at, '0', '0', end);
        }
    edge(pool, dfa, end, '0', '0', end);
    dfa->states[end].accepts = true;
    return dfa_trim(pool, dfa);
}
