// A file mapped, or copied into huge pages: the same bytes, in memory of which the kernel knows what it is for; and what is
// said where that cannot be.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "util/file.h"

enum { HUGE_PAGE = 2 << 20, SIZE = 5 * HUGE_PAGE / 2 + 123 };

static bool huge_pages_enabled(void)
{
    char line[64] = "never";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    const bool enabled = file && fgets(line, sizeof line, file) && !strstr(line, "[never]");
    if (file)
        fclose(file);
    return enabled;
}

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 2654435761u >> 13);
}

// A file of SIZE bytes, or, with `hole`, of so many that are not there.
static void make_file(char *path, off_t hole)
{
    strcpy(path, "/tmp/yalm_huge_XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    if (hole)
        assert_int_equal(ftruncate(fd, hole), 0);
    uint8_t *bytes = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = byte_at(i);
    if (!hole)
        assert_int_equal(write(fd, bytes, SIZE), SIZE);
    free(bytes);
    close(fd);
}

// Whether the kernel's list of mappings has the flag "hg", advised to be huge, for the one that begins at p.
static bool advised(const void *p)
{
    char line[4096], start[32];
    snprintf(start, sizeof start, "%lx-", (unsigned long)(uintptr_t)p);
    FILE *file = fopen("/proc/self/smaps", "r");
    bool inside = false, found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (!strncmp(line, start, strlen(start)))
            inside = true;
        else if (inside && !strncmp(line, "VmFlags:", 8))
            break;
    }
    found = inside && strstr(line, " hg");
    if (file)
        fclose(file);
    return found;
}

static void test_copy(void **state)
{
    (void)state;
    char path[64];
    make_file(path, 0);
    struct mapping mapping;
    yalm_error error = {0};
    const yalm_status status = mapping_open(&mapping, path, true, &error);
    unlink(path);
    if (!huge_pages_enabled()) {
        assert_int_equal(status, YALM_FAILED);
        assert_non_null(strstr(error.text, "no huge pages"));
        assert_null(mapping.data);
        return;
    }
    assert_int_equal(status, YALM_OK);
    assert_int_equal(mapping.size, SIZE);
    assert_int_equal((uintptr_t)mapping.data % HUGE_PAGE, 0);
    for (size_t i = 0; i < SIZE; i++)
        assert_int_equal(mapping.data[i], byte_at(i));
    assert_true(advised(mapping.data));
    mapping_close(&mapping);
    assert_null(mapping.data);
}

// Without a copy too the kernel is told what the pages are for. It may still have none for files.
static void test_map(void **state)
{
    (void)state;
    char path[64];
    make_file(path, 0);
    struct mapping mapping;
    yalm_error error = {0};
    assert_int_equal(mapping_open(&mapping, path, false, &error), YALM_OK);
    unlink(path);
    assert_int_equal(mapping.copied, 0);
    for (size_t i = 0; i < SIZE; i++)
        assert_int_equal(mapping.data[i], byte_at(i));
    if (huge_pages_enabled())
        assert_true(advised(mapping.data));
    mapping_close(&mapping);
}

static void test_too_large(void **state)
{
    (void)state;
    char path[64];
    make_file(path, (off_t)8 << 40);
    struct mapping mapping;
    yalm_error error = {0};
    assert_int_equal(mapping_open(&mapping, path, true, &error), YALM_NO_MEMORY);
    assert_non_null(strstr(error.text, "8796.09 GB are needed"));
    assert_null(mapping.data);
    assert_int_equal(mapping_open(&mapping, path, false, &error), YALM_OK); // mapping it takes none
    mapping_close(&mapping);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copy), cmocka_unit_test(test_map),
                                       cmocka_unit_test(test_too_large)};
    return cmocka_run_group_tests_name("huge pages", tests, NULL, NULL);
}
