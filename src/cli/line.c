// See line.h.
#include "cli/line.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef YALM_LIBEDIT
#include <histedit.h>
#endif

struct line_reader {
    bool terminal;
    char *line; // (room), getline()'s
    size_t room;
    const char *prompt;
    bool interrupted;
#ifdef YALM_LIBEDIT
    EditLine *editor; // NULL: plain lines
    History *history;
#endif
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

// ---------------------------------------------------------------- libedit

#ifdef YALM_LIBEDIT
static char *show_prompt(EditLine *editor)
{
    struct line_reader *reader;
    el_get(editor, EL_CLIENTDATA, &reader);
    return (char *)reader->prompt;
}

// ^C comes as a character, so that no signal meets libedit at an awkward moment.
static unsigned char take_interrupt(EditLine *editor, int character)
{
    struct line_reader *reader;
    (void)character;
    el_get(editor, EL_CLIENTDATA, &reader);
    reader->interrupted = true;
    return CC_EOF;
}

// As the terminal would, whose signals are off for the sake of ^C.
static unsigned char suspend(EditLine *editor, int character)
{
    (void)character;
    el_set(editor, EL_PREP_TERM, 0);
    raise(SIGTSTP);
    el_set(editor, EL_PREP_TERM, 1);
    return CC_REFRESH;
}

static void open_editor(struct line_reader *reader)
{
    HistEvent event;
    setlocale(LC_CTYPE, ""); // libedit reads characters, not bytes
    reader->editor = el_init("yalm", stdin, stdout, stderr);
    reader->history = reader->editor ? history_init() : NULL;
    if (reader->history == NULL)
        return;
    history(reader->history, &event, H_SETSIZE, 1000);
    el_set(reader->editor, EL_CLIENTDATA, reader);
    el_set(reader->editor, EL_PROMPT, show_prompt);
    el_set(reader->editor, EL_EDITOR, "emacs");
    el_set(reader->editor, EL_HIST, history, reader->history);
    el_set(reader->editor, EL_SETTY, "-d", "-isig", NULL);
    el_wset(reader->editor, EL_ADDFN, L"yalm-interrupt", L"stop", take_interrupt);
    el_set(reader->editor, EL_BIND, "^C", "yalm-interrupt", NULL);
    el_wset(reader->editor, EL_ADDFN, L"yalm-suspend", L"suspend", suspend);
    el_set(reader->editor, EL_BIND, "^Z", "yalm-suspend", NULL);
    el_set(reader->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(reader->editor, EL_BIND, "^P", "ed-prev-history", NULL);
    el_set(reader->editor, EL_BIND, "^N", "ed-next-history", NULL);
    el_set(reader->editor, EL_SIGNAL, 0);
    el_source(reader->editor, NULL);
}

static enum line_result read_edited(struct line_reader *reader, const char *prompt, struct text *line)
{
    int n = 0;
    reader->prompt = prompt;
    reader->interrupted = false;
    el_set(reader->editor, EL_PREP_TERM, 1); // before the prompt: ^C is a character from when it can be seen
    const char *typed = el_gets(reader->editor, &n);
    if (reader->interrupted) {
        fputc('\n', stdout);
        fflush(stdout);
        return LINE_INTERRUPTED;
    }
    if (typed == NULL || n <= 0)
        return n < 0 ? LINE_FAILED : LINE_END;
    free(reader->line);
    reader->line = strdup(typed);
    reader->room = (size_t)n;
    if (reader->line == NULL)
        return LINE_FAILED;
    *line = (struct text){reader->line, strcspn(reader->line, "\n")};
    reader->line[line->length] = '\0';
    return LINE_READ;
}
#endif

// ---------------------------------------------------------------- either

struct line_reader *line_open(void)
{
    struct line_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL)
        return NULL;
    reader->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
#ifdef YALM_LIBEDIT
    if (reader->terminal)
        open_editor(reader);
#endif
    return reader;
}

void line_close(struct line_reader *reader)
{
    if (reader == NULL)
        return;
#ifdef YALM_LIBEDIT
    if (reader->history)
        history_end(reader->history);
    if (reader->editor)
        el_end(reader->editor);
#endif
    free(reader->line);
    free(reader);
}

bool line_on_terminal(const struct line_reader *reader)
{
    return reader->terminal;
}

enum line_result line_read(struct line_reader *reader, const char *prompt, struct text *line)
{
#ifdef YALM_LIBEDIT
    if (reader->history)
        return read_edited(reader, prompt, line);
#endif
    return read_plain(reader, prompt, line);
}

void line_remember(struct line_reader *reader, const char *message)
{
#ifdef YALM_LIBEDIT
    HistEvent event;
    if (reader->history && strchr(message, '\n') == NULL)
        history(reader->history, &event, H_ENTER, message);
#else
    (void)reader;
    (void)message;
#endif
}
