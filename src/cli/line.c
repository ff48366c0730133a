// See line.h.
#include "cli/line.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/edit.h"
#include "cli/history.h"

struct line_reader {
    bool terminal;
    char *line; // (room), getline()'s
    size_t room;
    struct editor *editor; // NULL: plain lines
};

// ---------------------------------------------------------------- plain lines

static void on_interrupt(int signal)
{
    (void)signal; // read() returns
}

static enum line_result read_plain(struct line_reader *reader, const char *prompt, struct text *line)
{
    if (reader->terminal) {
        fputs(prompt, stdout);
        fflush(stdout);
    }
    struct sigaction before, action = {.sa_handler = on_interrupt}; // without SA_RESTART
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before);
    errno = 0;
    ssize_t n = getline(&reader->line, &reader->room, stdin);
    const int code = errno;
    sigaction(SIGINT, &before, NULL);
    if (n < 0) {
        clearerr(stdin);
        return code == EINTR ? LINE_INTERRUPTED : code == 0 ? LINE_END : LINE_FAILED;
    }
    if (n > 0 && reader->line[n - 1] == '\n')
        n -= 1 + (n > 1 && reader->line[n - 2] == '\r'); // a script may have been written on Windows
    reader->line[n] = '\0';
    *line = (struct text){reader->line, (size_t)n};
    return LINE_READ;
}

// ---------------------------------------------------------------- either

struct line_reader *line_open(const char *const *words)
{
    struct line_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL)
        return NULL;
    reader->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (reader->terminal)
        reader->editor = editor_open(words);
    return reader;
}

void line_close(struct line_reader *reader)
{
    if (reader == NULL)
        return;
    editor_close(reader->editor);
    free(reader->line);
    free(reader);
}

bool line_on_terminal(const struct line_reader *reader)
{
    return reader->terminal;
}

enum line_result line_read(struct line_reader *reader, const char *prompt, struct text *line)
{
    if (reader->editor == NULL)
        return read_plain(reader, prompt, line);
    free(reader->line);
    reader->line = NULL;
    reader->room = 0;
    const enum line_result result = editor_read(reader->editor, prompt, &reader->line);
    if (result == LINE_READ)
        *line = (struct text){reader->line, strlen(reader->line)};
    return result;
}

bool line_remember(struct line_reader *reader, const char *message)
{
    if (reader->editor == NULL || *message == 0)
        return true;
    editor_remember(reader->editor, message);
    return history_add(message);
}

// ---------------------------------------------------------------- while an answer is written

static struct termios shown; // the terminal as it is at other times
static volatile sig_atomic_t held;

void line_hold(struct line_reader *reader)
{
    if (!reader->terminal || tcgetattr(STDIN_FILENO, &shown) != 0)
        return;
    struct termios hidden = shown;
    hidden.c_lflag &= ~(tcflag_t)(ECHO | ICANON); // ^C stays a signal
    held = tcsetattr(STDIN_FILENO, TCSADRAIN, &hidden) == 0;
}

void line_release(void)
{
    if (held)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &shown);
    held = 0;
}
