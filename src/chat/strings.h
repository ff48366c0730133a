// Strings as Python has them: sequences of code points, kept as UTF-8.
#pragma once
#include "chat/value.h"

// A text that grows in the arena.
struct writer {
    char *bytes; // (n), with room for `room`
    size_t n, room;
};

void write_bytes(struct run *run, struct writer *writer, const char *bytes, size_t n);
void write_text(struct run *run, struct writer *writer, const char *text);
void write_point(struct run *run, struct writer *writer, int32_t point);
struct value written(const struct writer *writer); // as a string that shares the bytes

size_t count_points(struct value text);
// Byte offset of `part` in text at or after byte `from`; SIZE_MAX where there is none.
size_t text_find(struct run *run, struct value text, struct value part, size_t from);
size_t text_find_last(struct run *run, struct value text, struct value part);
bool starts_with(struct value text, struct value part);
bool ends_with(struct value text, struct value part);

struct list *characters(struct run *run, struct value text);
struct value join_two(struct run *run, struct value a, struct value b);
struct value repeat(struct run *run, struct value text, int64_t times);

enum side { LEFT = 1, RIGHT = 2, BOTH = 3 };
// The text without the characters at its ends that are among `of`, a string; none(): without white space.
struct value strip(struct value text, struct value of, enum side side);
// Splits at `separator`, at most `most` times (-1: everywhere); none(): at runs of white space.
struct value split(struct run *run, struct value text, struct value separator, int64_t most);
struct value split_from_right(struct run *run, struct value text, struct value separator, int64_t most);
struct value split_lines(struct run *run, struct value text);
struct value replace(struct run *run, struct value text, struct value old, struct value new, int64_t most);

enum letter_case { LOWER, UPPER, CAPITAL, TITLE };
struct value in_case(struct run *run, struct value text, enum letter_case how);
bool is_space(int32_t point);
// text[start:stop:step] by code points, with bounds clipped as Python does it. none(): a bound that is left out.
bool slice_bounds(struct run *run, struct value start, struct value stop, struct value step, int64_t n, int64_t bounds[3]);
struct value slice_text(struct run *run, struct value text, struct value start, struct value stop, struct value step);
// The character at `index`, which counts from the end where it is negative; undefined where there is none.
struct value character_at(struct value text, int64_t index);
