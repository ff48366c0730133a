// See edit.h.
#include "cli/edit.h"

#ifdef YALM_LIBEDIT
#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "cli/history.h"

// A terminal that knows it puts what is pasted between ESC [ 200 ~ and ESC [ 201 ~.
#define PASTES    "\033[?2004h"
#define NO_PASTES "\033[?2004l"
static const wchar_t paste_end[] = L"\033[201~";
enum { PASTE_END = sizeof paste_end / sizeof *paste_end - 1 };

struct editor {
    EditLine *lines;
    History *history;
    const char *const *words;
    const char *prompt;
    bool stopped, pastes;
    int held;         // a byte that was read, and ended a character that was not whole; else -1
    sigset_t waiting; // what is blocked while a key is waited for
};

static volatile sig_atomic_t resized, ended; // ended: the signal that the program is to end by

static void on_signal(int signal)
{
    *(signal == SIGWINCH ? &resized : &ended) = signal;
}

static struct editor *editor_of(EditLine *lines)
{
    struct editor *editor;
    el_get(lines, EL_CLIENTDATA, &editor);
    return editor;
}

static char *show_prompt(EditLine *lines)
{
    return (char *)editor_of(lines)->prompt;
}

// The next character that is typed. When the window has another size the line is drawn again.
static int read_character(EditLine *lines, wchar_t *character)
{
    struct editor *editor = editor_of(lines);
    mbstate_t state = {0};
    for (;;) {
        char byte = (char)editor->held;
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        const bool held = editor->held >= 0, woken = !held && ppoll(&input, 1, NULL, &editor->waiting) < 0;
        const ssize_t n = held ? 1 : woken ? -1 : read(STDIN_FILENO, &byte, 1);
        editor->held = -1;
        if (ended)
            return 0;
        if (resized) {
            resized = 0;
            el_resize(lines);
            el_set(lines, EL_REFRESH);
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return (int)n;
        const bool begun = !mbsinit(&state);
        const size_t length = mbrtowc(character, &byte, 1, &state);
        if (length == (size_t)-1) {
            *character = 0xfffd;
            editor->held = begun ? (unsigned char)byte : -1;
        }
        if (length != (size_t)-2)
            return 1;
    }
}

// ---------------------------------------------------------------- keys

// ^C comes as a character, so that no signal meets libedit at an awkward moment.
static unsigned char take_interrupt(EditLine *lines, int character)
{
    (void)character;
    editor_of(lines)->stopped = true;
    return CC_EOF;
}

// As the terminal would, whose signals are off for the sake of ^C.
static unsigned char suspend(EditLine *lines, int character)
{
    (void)character;
    el_set(lines, EL_PREP_TERM, 0);
    raise(SIGTSTP);
    el_set(lines, EL_PREP_TERM, 1);
    return CC_REFRESH;
}

// Lines' ends that are pasted do not end the message.
static unsigned char take_paste(EditLine *lines, int character)
{
    wchar_t next[2] = {0}, before = 0;
    (void)character;
    for (size_t n = 0; n < PASTE_END && el_wgetc(lines, next) == 1;) {
        if (next[0] == paste_end[n]) {
            n++;
            continue;
        }
        for (size_t i = 1; i < n; i++) // no end: text, without the ESC
            el_winsertstr(lines, (wchar_t[2]){paste_end[i]});
        n = next[0] == paste_end[0];
        if (n > 0)
            continue;
        if (next[0] == 3) // ^C, of a paste that does not end
            return take_interrupt(lines, 3);
        const bool ends_line = next[0] == '\r' || (next[0] == '\n' && before != '\r');
        before = next[0];
        if (ends_line)
            next[0] = '\n';
        else if (next[0] < ' ' && next[0] != '\t')
            continue;
        el_winsertstr(lines, next);
    }
    return CC_REFRESH;
}

// The end of a command's name, as far as it is certain; where several begin so, what they are.
static unsigned char complete(EditLine *lines, int character)
{
    const struct editor *editor = editor_of(lines);
    const LineInfo *line = el_line(lines);
    const size_t length = (size_t)(line->cursor - line->buffer);
    const char *first = NULL;
    size_t common = 0;
    int n = 0;
    (void)character;
    if (length == 0 || line->buffer[0] != '/' || memchr(line->buffer, ' ', length))
        return CC_ERROR;
    for (const char *const *word = editor->words; *word; word++) {
        if (strncmp(*word, line->buffer + 1, length - 1) != 0)
            continue;
        if (n++ == 0)
            common = strlen(first = *word);
        while (strncmp(first, *word, common) != 0)
            common--;
    }
    if (n == 0)
        return CC_ERROR;
    char rest[32];
    snprintf(rest, sizeof rest, "%.*s%s", (int)(common + 1 - length), first + length - 1, n == 1 ? " " : "");
    if (*rest) {
        el_insertstr(lines, rest);
        return CC_REFRESH;
    }
    fputc('\n', stdout);
    for (const char *const *word = editor->words; *word; word++)
        if (strncmp(*word, line->buffer + 1, length - 1) == 0)
            printf("/%s  ", *word);
    fputs("\n", stdout);
    return CC_REDISPLAY;
}

// ---------------------------------------------------------------- lines

static void remember(void *context, const char *message)
{
    HistEvent event;
    history(((struct editor *)context)->history, &event, H_ENTER, message);
}

struct editor *editor_open(const char *const *words)
{
    HistEvent event;
    const char *terminal = getenv("TERM");
    struct editor *editor = calloc(1, sizeof *editor);
    // libedit reads characters, not bytes. A terminal sends UTF-8 also where no locale says so, as in containers.
    if (setlocale(LC_CTYPE, "") == NULL || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    EditLine *lines = editor ? el_init("yalm", stdin, stdout, stderr) : NULL;
    if (lines)
        *editor = (struct editor){.lines = lines,
                                  .history = history_init(),
                                  .words = words,
                                  .prompt = "",
                                  .pastes = terminal && strcmp(terminal, "dumb") != 0,
                                  .held = -1};
    if (lines == NULL || editor->history == NULL) {
        if (lines)
            el_end(lines);
        free(editor);
        return NULL;
    }
    history(editor->history, &event, H_SETSIZE, 1000);
    history(editor->history, &event, H_SETUNIQUE, 1);
    history_read(remember, editor);
    el_set(lines, EL_CLIENTDATA, editor);
    el_set(lines, EL_PROMPT, show_prompt);
    el_set(lines, EL_EDITOR, "emacs");
    el_set(lines, EL_HIST, history, editor->history);
    el_set(lines, EL_SETTY, "-d", "-isig", NULL);
    el_wset(lines, EL_GETCFN, read_character);
    static const struct {
        const wchar_t *name;
        const char *keys, *function;
        unsigned char (*run)(EditLine *, int);
    } keys[] = {{L"yalm-interrupt", "^C", "yalm-interrupt", take_interrupt},
                {L"yalm-suspend", "^Z", "yalm-suspend", suspend},
                {L"yalm-complete", "^I", "yalm-complete", complete},
                {L"yalm-paste", "\\e[200~", "yalm-paste", take_paste},
                {NULL, "^R", "em-inc-search-prev", NULL},
                {NULL, "^P", "ed-prev-history", NULL},
                {NULL, "^N", "ed-next-history", NULL}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (keys[i].run)
            el_wset(lines, EL_ADDFN, keys[i].name, keys[i].name, keys[i].run);
        el_set(lines, EL_BIND, keys[i].keys, keys[i].function, NULL);
    }
    el_set(lines, EL_SIGNAL, 0);
    el_source(lines, NULL);
    return editor;
}

void editor_close(struct editor *editor)
{
    if (editor == NULL)
        return;
    history_end(editor->history);
    el_end(editor->lines);
    free(editor);
}

enum line_result editor_read(struct editor *editor, const char *prompt, char **line)
{
    static const int signals[] = {SIGWINCH, SIGTERM, SIGHUP};
    enum { SIGNALS = sizeof signals / sizeof *signals };
    int n = 0;
    struct sigaction before[SIGNALS], action = {.sa_handler = on_signal};
    sigset_t blocked; // they come while a key is waited for, so that none is overlooked
    sigemptyset(&action.sa_mask);
    sigemptyset(&blocked);
    for (int i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], &action, &before[i]);
        sigaddset(&blocked, signals[i]);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &editor->waiting);
    editor->prompt = prompt;
    editor->stopped = false;
    el_set(editor->lines, EL_PREP_TERM, 1); // before the prompt: ^C is a character from when it can be seen
    fputs(editor->pastes ? PASTES : "", stdout);
    const char *typed = el_gets(editor->lines, &n);
    fputs(editor->pastes ? NO_PASTES : "", stdout);
    for (int i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &before[i], NULL);
    pthread_sigmask(SIG_SETMASK, &editor->waiting, NULL);
    if (ended) { // as without an editor, but that the terminal is as it was
        fflush(stdout);
        el_set(editor->lines, EL_PREP_TERM, 0);
        raise(ended);
    }
    if (editor->stopped || typed == NULL || n <= 0) // the cursor still stands behind the prompt
        fputc('\n', stdout);
    fflush(stdout);
    if (editor->stopped)
        return LINE_INTERRUPTED;
    if (typed == NULL || n <= 0)
        return n < 0 ? LINE_FAILED : LINE_END;
    *line = strdup(typed);
    if (*line == NULL)
        return LINE_FAILED;
    for (size_t length = strlen(*line); length > 0 && (*line)[length - 1] == '\n';) // of Enter, and of what was pasted
        (*line)[--length] = 0;
    return LINE_READ;
}

void editor_remember(struct editor *editor, const char *message)
{
    remember(editor, message);
}

#else

struct editor *editor_open(const char *const *words)
{
    (void)words;
    return NULL;
}

void editor_close(struct editor *editor)
{
    (void)editor;
}

enum line_result editor_read(struct editor *editor, const char *prompt, char **line)
{
    (void)editor;
    (void)prompt;
    (void)line;
    return LINE_FAILED;
}

void editor_remember(struct editor *editor, const char *message)
{
    (void)editor;
    (void)message;
}
#endif
