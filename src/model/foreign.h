// Names a file that is no model of ours: the usual mistakes.
#pragma once
#include <stddef.h>
#include <stdint.h>

// "a git-lfs pointer: run `git lfs pull` …" and the like; NULL where the bytes look like nothing that is known.
// data: (size), the file's beginning at least.
const char *foreign_file(const uint8_t *data, size_t size);
