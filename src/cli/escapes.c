// Escapes in texts of the command line.
#include <stdlib.h>
#include <string.h>

#include "cli/option_table.h"

// A byte by two hexadecimal digits; 0 where there are none, or where it would end the text.
static char hexadecimal(const char *digits)
{
    char two[3] = "";
    if (strspn(digits, "0123456789abcdefABCDEF") < 2)
        return 0;
    memcpy(two, digits, 2);
    return (char)strtol(two, NULL, 16);
}

void unescape(char *text)
{
    static const char letters[] = "ntr\\\"'", meanings[] = "\n\t\r\\\"'";
    char *out = text;
    while (*text) {
        const char *letter = *text == '\\' && text[1] ? strchr(letters, text[1]) : NULL;
        const char byte = *text == '\\' && text[1] == 'x' ? hexadecimal(text + 2) : 0;
        if (letter) {
            *out++ = meanings[letter - letters];
            text += 2;
        } else if (byte) {
            *out++ = byte;
            text += 4;
        } else
            *out++ = *text++;
    }
    *out = 0;
}
