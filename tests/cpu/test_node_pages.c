// That the system takes the request for pages on a node, and that what they hold stays. Node 0 is on every machine.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/machine/nodes.h"

enum { BYTES = 1 << 20 };

static int policy_at(const char *at)
{
    int mode = -1;
    return syscall(SYS_get_mempolicy, &mode, NULL, 0UL, at, MPOL_F_ADDR) == 0 ? mode : -errno;
}

static void test_whole_pages_are_moved(void **state)
{
    (void)state;
    const long page = sysconf(_SC_PAGESIZE);
    char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(block, MAP_FAILED);
    if (policy_at(block) < 0 || syscall(SYS_mbind, block, page, MPOL_DEFAULT, NULL, 0UL, 0) != 0)
        skip(); // a container may refuse both
    memset(block, 7, BYTES);
    nodes_move(block + 1, BYTES - 2, 0);
    assert_int_equal(policy_at(block), MPOL_DEFAULT); // of the first page and of the last something is another's
    assert_int_equal(policy_at(block + page), MPOL_PREFERRED);
    assert_int_equal(policy_at(block + BYTES - page - 1), MPOL_PREFERRED);
    assert_int_equal(policy_at(block + BYTES - page), MPOL_DEFAULT);
    nodes_move(block, BYTES, 1000); // there is none
    nodes_move(block, 0, 0);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(block[i], 7);
    munmap(block, BYTES);
}

static void test_each_processor_has_a_node(void **state)
{
    (void)state;
    int nodes[3] = {-1, -1, -1};
    nodes_of((const int[]){0, -1, 1 << 20}, 3, nodes);
    assert_true(nodes[0] >= 0);
    assert_int_equal(nodes[1], 0);
    assert_int_equal(nodes[2], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_pages_are_moved),
        cmocka_unit_test(test_each_processor_has_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
