// See wrap.h.
#include "cli/wrap.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

enum { LONGEST = 256, NARROWEST = 20 };

static struct {
    char word[LONGEST]; // (length): not shown yet
    size_t length;
    int spaces;   // before it
    int column;   // where the cursor stands
    int ticks;    // of three with which the line begins
    bool inside;  // of a line: it has more than ticks
    bool in_code; // no line is broken
} now;

static int width_of_terminal(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= NARROWEST ? size.ws_col : 1 << 30;
}

// Columns of the text. *wide: its last character takes two, as a Chinese one does, behind which a line may end.
static int columns(const char *text, size_t length, bool *wide)
{
    int sum = 0;
    *wide = false;
    for (size_t at = 0; at < length;) {
        utf8proc_int32_t character;
        if (text[at] == '\033') { // a colour
            for (at++; at < length && text[at] != 'm'; at++)
                ;
            at++;
            continue;
        }
        const utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(length - at), &character);
        const int width = n > 0 ? utf8proc_charwidth(character) : 1;
        *wide = width == 2;
        sum += width;
        at += n > 0 ? (size_t)n : 1;
    }
    return sum;
}

static yalm_status send_word(yalm_error *error)
{
    static const char blanks[] = "                ";
    bool wide;
    const int width = columns(now.word, now.length, &wide), most = width_of_terminal();
    yalm_status status = YALM_OK;
    if (now.length == 0)
        return YALM_OK;
    if (!now.in_code && now.column > 0 && now.column + now.spaces + width > most) {
        status = output("\n", 1, error);
        now.column = now.spaces = 0;
    }
    now.column += now.spaces + width;
    if (now.column > most) // a longer word than a line, which the terminal breaks
        now.column %= most;
    for (; now.spaces > 0 && status == YALM_OK; now.spaces -= 16)
        status = output(blanks, now.spaces < 16 ? (size_t)now.spaces : 16, error);
    now.spaces = 0;
    status = status ?: output(now.word, now.length, error);
    now.length = 0;
    return status;
}

static yalm_status end_line(yalm_error *error)
{
    const yalm_status status = send_word(error);
    now.in_code ^= now.ticks == 3;
    now.column = now.spaces = now.ticks = 0;
    now.inside = false;
    return status ?: output("\n", 1, error);
}

yalm_status wrap_output(const char *bytes, size_t length, yalm_error *error)
{
    yalm_status status = YALM_OK;
    for (size_t i = 0; i < length && status == YALM_OK; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        if (byte == '\n') {
            status = end_line(error);
            continue;
        }
        now.inside |= byte != '`' && byte != ' ';
        now.ticks += byte == '`' && !now.inside && now.ticks < 3;
        if (byte == ' ') {
            status = send_word(error);
            now.spaces++;
            continue;
        }
        bool wide;
        const bool begins = (byte & 0xc0) != 0x80; // a character
        if ((begins && now.length > 0 && (columns(now.word, now.length, &wide), wide || now.length > LONGEST - 8)) ||
            now.length == LONGEST)
            status = send_word(error);
        now.word[now.length++] = (char)byte;
    }
    return status;
}

yalm_status wrap_end(yalm_error *error)
{
    const yalm_status status = send_word(error);
    memset(&now, 0, sizeof now);
    return status;
}
