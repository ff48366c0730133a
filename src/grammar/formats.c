// The standard's formats of strings, as expressions: RFC 3339, 5321, 1123, 2673, 4291, 3986, 4122, 6901.
#include <string.h>

#include "grammar/pattern.h"

#define DAY   "(((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01]))|((0[469]|11)-(0[1-9]|[12]\\d|30))|02-(0[1-9]|1\\d|2[0-8]))"
#define LEAP  "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
#define DATE  "((000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})-" DAY "|" LEAP ")"
#define TIME  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define BYTE  "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  BYTE "(\\." BYTE "){3}"
#define H     "[0-9a-fA-F]{1,4}"
#define IPV6                                                                                                                   \
    "((" H ":){7}" H "|(" H ":){1,7}:|(" H ":){1,6}:" H "|(" H ":){1,5}(:" H "){1,2}|(" H ":){1,4}(:" H "){1,3}|(" H           \
    ":){1,3}(:" H "){1,4}|(" H ":){1,2}(:" H "){1,5}|" H ":((:" H "){1,6})|:((:" H "){1,7}|:)|(" H ":){6}" IPV4 "|::(" H       \
    ":){0,5}" IPV4 "|(" H ":){1,5}:" IPV4 ")"
#define ESCAPED "%[0-9A-Fa-f]{2}"
#define PART    "([A-Za-z0-9._~!$&'()*+,;=:@/-]|" ESCAPED ")*"
#define SEGMENT "([A-Za-z0-9._~!$&'()*+,;=@-]|" ESCAPED ")*" // without a colon, which would end a scheme
#define QUERY   "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|" ESCAPED ")*)?(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|" ESCAPED ")*)?"
#define HOST                                                                                                                   \
    "(([A-Za-z0-9._~!$&'()*+,;=:@-]|" ESCAPED ")*@)?(\\[[0-9A-Fa-f:.]+\\]|([A-Za-z0-9._~!$&'()*+,;=-]|" ESCAPED ")*)(:\\d*)?"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
// Of expressions: three levels of groups. Whether a range or a number of times ends before it begins is not looked at.
#define SIGN            "\\\\[dDwWsSfnrtv^$.*+?()[\\]{}|/\\\\-]"
#define CLASS           "\\[\\^?-?([0-9]-[0-9]|[a-z]-[a-z]|[A-Z]-[A-Z]|[^\\\\\\[\\]-]|" SIGN ")+-?\\]"
#define ATOM_OF(groups) "((([^\\\\()\\[\\]{}*+?|^$]|" SIGN "|" CLASS groups ")([*+?]\\??|\\{\\d+(,\\d*)?\\})?)|[|^$]|\\\\[bB])*"
#define GROUP(inner)    "|\\((\\?[:=!])?" inner "\\)"
#define POINTER         "(/([^/~]|~[01])*)*"

static const struct format {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "[Tt]" TIME},
    {"duration", "P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))?"
                 "|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))"},
    {"email", ATOM "(\\." ATOM ")*@" LABEL "(\\." LABEL ")*"},
    {"idn-email", "[^@\\s\"]+@[^@\\s\"]+"},
    {"hostname", LABEL "(\\." LABEL ")*"},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*:(//" HOST "(/" PART ")?|" PART ")" QUERY},
    {"uri-reference",
     "([A-Za-z][A-Za-z0-9+.-]*:(//" HOST "(/" PART ")?|" PART ")|//" HOST "(/" PART ")?|" SEGMENT "(/" PART ")?)" QUERY},
    {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"json-pointer", POINTER},
    {"regex", ATOM_OF(GROUP(ATOM_OF(GROUP(ATOM_OF("")))))},
    {"relative-json-pointer", "(0|[1-9]\\d*)(#|" POINTER ")"},
};

const struct dfa *format_read(struct pool *pool, const char *format)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, format) == 0) {
            char whole[4096] = "^(?:";
            strcat(strcat(whole, formats[i].pattern), ")$");
            return pattern_read(pool, whole);
        }
    return NULL;
}
