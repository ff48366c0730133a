// Limits of control groups: the process's own group counts, and every one above it, in both versions of their file system.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "util/cgroup.h"

static char mounted[] = "/tmp/test_cgroup.XXXXXX", own[sizeof mounted + 8];
static const struct cgroup_system here = {mounted, own};

static void write_file(const char *path, const char *text)
{
    char whole[256];
    snprintf(whole, sizeof whole, "%s/%s", mounted, path);
    for (char *slash = whole + strlen(mounted) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(whole, 0700);
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int begin(void **state)
{
    (void)state;
    strcpy(mounted + strlen(mounted) - 6, "XXXXXX");
    if (!mkdtemp(mounted))
        return -1;
    snprintf(own, sizeof own, "%s/own", mounted);
    return 0;
}

static int end(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", mounted);
    return system(command);
}

static void no_groups(void **state)
{
    (void)state;
    assert_true(isinf(cgroup_cpus(&here)));
    assert_true(cgroup_memory_left(&here) == UINT64_MAX);
}

static void the_topmost(void **state)
{
    (void)state;
    write_file("own", "0::/\n");
    write_file("cpu.max", "250000 100000\n");
    write_file("memory.max", "1000\n");
    write_file("memory.current", "700\n");
    write_file("memory.stat", "anon 300\nfile 400\nfile_mapped 9\n");
    assert_true(cgroup_cpus(&here) == 2.5);
    assert_int_equal(cgroup_memory_left(&here), 700); // 1000 - (700 - 400)
}

static void the_nearest_of_all_above(void **state)
{
    (void)state;
    write_file("own", "0::/system.slice/yalm.service\n");
    write_file("cpu.max", "max 100000\n");
    write_file("system.slice/cpu.max", "150000 100000\n");
    write_file("system.slice/yalm.service/cpu.max", "400000 100000\n");
    assert_true(cgroup_cpus(&here) == 1.5);
    write_file("system.slice/yalm.service/cpu.max", "50000 100000\n");
    assert_true(cgroup_cpus(&here) == 0.5);
    write_file("system.slice/memory.max", "9000\n");
    write_file("system.slice/memory.current", "1000\n");
    write_file("system.slice/yalm.service/memory.max", "max\n");
    write_file("system.slice/yalm.service/memory.current", "10\n");
    assert_int_equal(cgroup_memory_left(&here), 8000);
    write_file("system.slice/yalm.service/memory.max", "5\n"); // beyond its limit already
    assert_int_equal(cgroup_memory_left(&here), 0);
}

static void the_first_version(void **state)
{
    (void)state;
    write_file("own", "9:name=systemd:/a\n4:memory:/a/b\n3:cpu,cpuacct:/a\n0::/elsewhere\n");
    write_file("cpu/cpu.cfs_quota_us", "-1\n");
    write_file("cpu/cpu.cfs_period_us", "100000\n");
    assert_true(isinf(cgroup_cpus(&here)));
    write_file("cpu/a/cpu.cfs_quota_us", "300000\n");
    write_file("cpu/a/cpu.cfs_period_us", "100000\n");
    assert_true(cgroup_cpus(&here) == 3);
    write_file("memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_file("memory/memory.usage_in_bytes", "5\n");
    write_file("memory/a/memory.limit_in_bytes", "100\n");
    write_file("memory/a/memory.usage_in_bytes", "90\n");
    write_file("memory/a/memory.stat", "cache 1\ntotal_cache 40\n");
    assert_int_equal(cgroup_memory_left(&here), 50);
}

// What a container sees of itself lies at the top, whatever its group is called outside; and a group outside a namespace is not
// looked for.
static void groups_that_cannot_be_seen(void **state)
{
    (void)state;
    write_file("cpu.max", "200000 100000\n");
    write_file("own", "0::/docker/0123456789abcdef\n");
    assert_true(cgroup_cpus(&here) == 2);
    write_file("own", "0::/../../other\n");
    assert_true(cgroup_cpus(&here) == 2);
    write_file("own", "nonsense\n:\n::\n0:\n");
    assert_true(cgroup_cpus(&here) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_groups, begin, end),
        cmocka_unit_test_setup_teardown(the_topmost, begin, end),
        cmocka_unit_test_setup_teardown(the_nearest_of_all_above, begin, end),
        cmocka_unit_test_setup_teardown(the_first_version, begin, end),
        cmocka_unit_test_setup_teardown(groups_that_cannot_be_seen, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
