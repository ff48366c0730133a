// Literals of JSON, Python and Gemma as JSON: templates write the values of arguments in all three.
#include "speech/reader.h"
#include "util/json_read.h"

enum { MOST_DEPTH = 64 };

struct literals {
    struct span rest;
    struct buffer *out;
    const char *quote; // the mark around a text; "" or a single quote of Python: there is none
    int depth;
};

static bool read_value(struct literals *in);

static bool take(struct literals *in, char c)
{
    in->rest = skip_blanks(in->rest);
    const bool is = in->rest.length && *in->rest.at == c;
    in->rest = rest_of(in->rest, is);
    return is;
}

// Whether the quote there ends a text: templates leave an apostrophe in one as it is.
bool ends_quoted(struct span rest)
{
    return rest.length < 2 || strchr(",)]}:", rest.at[1]) != NULL;
}

// A string as Python or JSON writes it. JSON's own stays as it is.
static bool read_string(struct literals *in, char quote)
{
    size_t n = 1;
    bool plain = quote == '"';
    for (bool escaped = false;
         n < in->rest.length && (escaped || in->rest.at[n] != quote || (quote == '\'' && !ends_quoted(rest_of(in->rest, n))));
         n++) {
        plain &= (unsigned char)in->rest.at[n] >= ' ' && !(escaped && !strchr("\"\\/bfnrtu", in->rest.at[n]));
        escaped = !escaped && in->rest.at[n] == '\\';
    }
    if (n >= in->rest.length)
        return false;
    const struct span text = {in->rest.at + 1, n - 1};
    in->rest = rest_of(in->rest, n + 1);
    if (plain) {
        buffer_add(in->out, text.at - 1, text.length + 2);
        return true;
    }
    struct buffer said = {0};
    for (size_t i = 0; i < text.length; i++) {
        static const char codes[] = "nrtbf", meant[] = "\n\r\t\b\f";
        const bool escape = text.at[i] == '\\' && i + 1 < text.length;
        const char *code = escape ? strchr(codes, text.at[i + 1]) : NULL;
        if (escape && !code && !strchr("'\"\\", text.at[i + 1]))
            buffer_add(&said, "\\", 1);
        i += escape;
        buffer_add(&said, code ? meant + (code - codes) : text.at + i, 1);
    }
    buffer_json(in->out, said.at ? said.at : "", said.length);
    buffer_free(&said);
    return true;
}

static bool read_quoted(struct literals *in)
{
    const size_t n = strlen(in->quote);
    const char *end = memmem(in->rest.at + n, in->rest.length - n, in->quote, n);
    if (end == NULL)
        return false;
    buffer_json(in->out, in->rest.at + n, (size_t)(end - in->rest.at) - n);
    in->rest = rest_of(in->rest, (size_t)(end - in->rest.at) + n);
    return true;
}

static struct span take_word(struct literals *in, const char *ends)
{
    size_t n = 0;
    while (n < in->rest.length && !strchr(ends, in->rest.at[n]))
        n++;
    const struct span word = trim_end((struct span){in->rest.at, n});
    in->rest = rest_of(in->rest, n);
    return word;
}

// A number or a word. Words that JSON does not have become strings.
static bool read_word(struct literals *in)
{
    static const char *const words[][2] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                                           {"True", "true"}, {"False", "false"}, {"None", "null"}};
    const struct span word = take_word(in, ",}]{[");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (word.length == strlen(words[i][0]) && begins(word, words[i][0])) {
            buffer_text(in->out, words[i][1]);
            return true;
        }
    if (word.length > 0 && json_number_length(word.at, word.length) == word.length) // a date, or 007, is none
        buffer_add(in->out, word.at, word.length);
    else
        buffer_json(in->out, word.at, word.length);
    return word.length > 0;
}

static bool is_quoted(const struct literals *in)
{
    return in->quote[0] && in->quote[1] && begins(in->rest, in->quote);
}

static bool read_key(struct literals *in)
{
    in->rest = skip_blanks(in->rest);
    if (is_quoted(in))
        return read_quoted(in);
    if (in->rest.length && strchr("\"'", *in->rest.at))
        return read_string(in, *in->rest.at);
    const struct span word = take_word(in, ":=,{}[]");
    buffer_json(in->out, word.at, word.length);
    return word.length > 0;
}

// Up to the closing bracket; 0: to the end.
static bool read_members(struct literals *in, char close)
{
    const char *comma = "";
    for (;;) {
        in->rest = skip_blanks(in->rest);
        if (close ? take(in, close) : in->rest.length == 0)
            return true;
        if (*comma && !take(in, ','))
            return false;
        buffer_text(in->out, comma);
        comma = ", ";
        if (!read_key(in) || !(take(in, ':') || take(in, '=')))
            return false;
        buffer_text(in->out, ": ");
        if (!read_value(in))
            return false;
    }
}

static bool read_list(struct literals *in)
{
    for (const char *comma = "";; comma = ", ") {
        if (take(in, ']'))
            return true;
        if (*comma && !take(in, ','))
            return false;
        buffer_text(in->out, comma);
        if (!read_value(in))
            return false;
    }
}

static bool read_value(struct literals *in)
{
    in->rest = skip_blanks(in->rest);
    if (in->rest.length == 0 || in->depth == MOST_DEPTH)
        return false;
    const char c = *in->rest.at;
    if (is_quoted(in))
        return read_quoted(in);
    if (c == '"' || c == '\'')
        return read_string(in, c);
    if (c != '{' && c != '[')
        return read_word(in);
    in->depth++;
    in->rest = rest_of(in->rest, 1);
    buffer_add(in->out, &c, 1);
    const bool good = c == '{' ? read_members(in, '}') : read_list(in);
    buffer_text(in->out, c == '{' ? "}" : "]");
    in->depth--;
    return good;
}

bool literal_to_json(struct buffer *out, struct span text, const char *quote)
{
    struct literals in = {trim_end(skip_blanks(text)), out, quote, 0};
    return read_value(&in) && skip_blanks(in.rest).length == 0;
}

bool members_to_json(struct buffer *out, struct span text, const char *quote)
{
    struct literals in = {text, out, quote, 0};
    return read_members(&in, 0);
}
