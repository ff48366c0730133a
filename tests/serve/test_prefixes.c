// Pages of beginnings: what is kept and found, who gives way, and places in the tree that have become wrong.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <sys/stat.h>

#include "engine/sessions.h"
#include "serve/prefixes.h"

enum { CONTEXT = 512, MOST = 12 };

static yalm_session *session;
static struct prefixes *prefixes;
static uint64_t page_bytes;

static int set_up(void **state)
{
    (void)state;
    the_model = small_model(1, 8, CONTEXT);
    yalm_session_options options = yalm_session_defaults();
    yalm_error error;
    options.n_threads = 1;
    session = yalm_session_open(&the_model->model, &options, &error);
    struct prefixes *one = prefixes_open(session, 1 << 20);
    struct prefix_place place = {0};
    eval(session, 0, PAGE_TOKENS);
    prefixes_keep(one, &place, session, 0);
    page_bytes = prefixes_bytes(one);
    prefixes_close(one);
    prefixes = prefixes_open(session, MOST * page_bytes);
    return !prefixes;
}

static int tear_down(void **state)
{
    (void)state;
    prefixes_close(prefixes);
    yalm_session_close(session);
    random_model_free(the_model);
    return 0;
}

// The text of sequence `which`: all begin with the same n_common tokens.
static const int32_t *text_of(int which, int n_common)
{
    static int32_t tokens[CONTEXT];
    for (int i = 0; i < CONTEXT; i++)
        tokens[i] = i < n_common ? token_at(i) : token_at(i + 17 * which);
    return tokens;
}

static void read_text(const int32_t *tokens, int from, int to)
{
    yalm_error error;
    yalm_rollback(session, from, NULL);
    assert_int_equal(yalm_eval(session, tokens + from, to - from, YALM_LOGITS_NONE, &error), YALM_OK);
}

static void keep(int which, int n_common, int n)
{
    struct prefix_place place = {0};
    read_text(text_of(which, n_common), 0, n);
    prefixes_keep(prefixes, &place, session, 0);
}

static size_t kept(int which, int n_common)
{
    return prefixes_find(prefixes, text_of(which, n_common), CONTEXT).n_pages;
}

static void test_beginnings_are_shared(void **state)
{
    (void)state;
    keep(1, 4 * PAGE_TOKENS, 6 * PAGE_TOKENS + 3);
    keep(2, 4 * PAGE_TOKENS, 7 * PAGE_TOKENS);
    assert_int_equal(kept(1, 4 * PAGE_TOKENS), 6);
    assert_int_equal(kept(2, 4 * PAGE_TOKENS), 7);
    assert_int_equal(kept(3, 4 * PAGE_TOKENS), 4);
    assert_int_equal(kept(3, PAGE_TOKENS - 1), 0);
    assert_int_equal(prefixes_bytes(prefixes), 9 * page_bytes);
}

// Of three sequences behind one page the one that was used longest ago loses its end first, and a beginning outlives its ends.
static void test_the_oldest_end_gives_way(void **state)
{
    (void)state;
    for (int which = 1; which <= 3; which++)
        keep(which, PAGE_TOKENS, 4 * PAGE_TOKENS);
    assert_int_equal(prefixes_bytes(prefixes), 10 * page_bytes);
    assert_int_equal(kept(1, PAGE_TOKENS), 4); // and is used now
    keep(4, PAGE_TOKENS, 4 * PAGE_TOKENS);
    assert_int_equal(prefixes_bytes(prefixes), MOST * page_bytes);
    assert_int_equal(kept(2, PAGE_TOKENS), 3);
    assert_int_equal(kept(3, PAGE_TOKENS), 4);
    assert_int_equal(kept(1, PAGE_TOKENS), 4);
    assert_int_equal(kept(4, PAGE_TOKENS), 4);
    keep(5, 0, (MOST - 1) * PAGE_TOKENS); // shares nothing
    assert_int_equal(kept(5, 0), MOST - 1);
    assert_int_equal(kept(4, PAGE_TOKENS), 1);
    keep(5, 0, (MOST + 4) * PAGE_TOKENS); // no page takes the place of the one before it
    assert_int_equal(kept(5, 0), MOST);
}

// A sequence that goes on is kept page by page, also where its place in the tree was taken from it.
static void test_places(void **state)
{
    (void)state;
    struct prefix_place place = {0};
    const int32_t *tokens = text_of(1, 0);
    assert_true(prefixes_has_more(prefixes, &place, tokens, CONTEXT)); // who has no place must look
    for (int n = 1; n <= 5; n++) {
        read_text(tokens, (n - 1) * PAGE_TOKENS, n * PAGE_TOKENS);
        prefixes_keep(prefixes, &place, session, (n - 1) * PAGE_TOKENS);
        assert_int_equal(prefixes_bytes(prefixes), (uint64_t)n * page_bytes);
        assert_false(prefixes_has_more(prefixes, &place, tokens, CONTEXT));
    }
    assert_int_equal(kept(1, 0), 5);
    keep(2, 0, MOST * PAGE_TOKENS); // takes all memory
    assert_int_equal(kept(1, 0), 0);
    assert_true(prefixes_has_more(prefixes, &place, text_of(1, 0), CONTEXT));
    read_text(text_of(1, 0), 0, 6 * PAGE_TOKENS);
    prefixes_keep(prefixes, &place, session, 5 * PAGE_TOKENS);
    assert_int_equal(kept(1, 0), 6);
    keep(1, 0, 8 * PAGE_TOKENS); // by somebody else
    assert_true(prefixes_has_more(prefixes, &place, text_of(1, 0), CONTEXT));
    assert_false(prefixes_has_more(prefixes, &place, text_of(1, 0), 7 * PAGE_TOKENS - 1));
}

// Tokens that were taken back since: what follows them is kept behind what is still the same.
static void test_tokens_taken_back(void **state)
{
    (void)state;
    struct prefix_place place = {0};
    read_text(text_of(1, 0), 0, 4 * PAGE_TOKENS);
    prefixes_keep(prefixes, &place, session, 0);
    read_text(text_of(2, 2 * PAGE_TOKENS), 2 * PAGE_TOKENS, 5 * PAGE_TOKENS);
    prefixes_keep(prefixes, &place, session, 2 * PAGE_TOKENS);
    assert_int_equal(kept(1, 0), 4);
    read_text(text_of(1, 0), 0, 4 * PAGE_TOKENS);
    int32_t tokens[CONTEXT];
    memcpy(tokens, text_of(1, 0), sizeof tokens);
    memcpy(tokens + 2 * PAGE_TOKENS, text_of(2, 2 * PAGE_TOKENS) + 2 * PAGE_TOKENS, sizeof(int32_t) * 3 * PAGE_TOKENS);
    assert_int_equal(prefixes_find(prefixes, tokens, CONTEXT).n_pages, 5);
}

// ---------------------------------------------------------------- checkpoints

static uint64_t state_bytes, room;

// Memory for twelve states, which may take half of it; beside small ones, for as many pages.
static int open_recurrent(struct model_config config, bool small)
{
    the_model = random_model_make(config, DTYPE_FP32, 3);
    session = open_with(small_options("dense", CONTEXT));
    state_bytes = yalm_state_bytes(session);
    room = 12 * (state_bytes + (small ? yalm_page_bytes(session, PAGE_TOKENS) : 0));
    prefixes = prefixes_open(session, room);
    return !prefixes;
}

static int set_up_recurrent(void **state)
{
    (void)state;
    struct model_config config = small_config(2, 8, CONTEXT);
    config.n_more_kinds = config.kind_of_layer[0] = 1;
    config.kinds[1].delta =
        (struct delta_config){.n_key_heads = 1, .n_value_heads = 2, .key_dim = 64, .value_dim = 64, .conv_width = 4};
    config.output_gate = true;
    const int failed = open_recurrent(config, false);
    assert_in_range(state_bytes, 2 * 64 * 64 * sizeof(float), 3 * 64 * 64 * sizeof(float));
    return failed;
}

// LFM2's short convolutions, which carry their last inputs alone.
static int set_up_convolution(void **state)
{
    (void)state;
    struct model_config config = small_config(2, 8, CONTEXT);
    config.n_more_kinds = config.kind_of_layer[0] = 1;
    config.kinds[1].delta = (struct delta_config){.conv_width = 3, .conv_dim = config.hidden_dim};
    return open_recurrent(config, true);
}

// Kimi Linear's, whose pages have latents.
static int set_up_kda(void **state)
{
    (void)state;
    struct model_config config = small_config(2, 8, CONTEXT);
    give_kda(&config, 4);
    return open_recurrent(config, true);
}

// Reads a sequence up to `n`, with checkpoints every `apart` pages.
static void read_with_states(int which, int n_common, int n_pages, int apart)
{
    struct prefix_place place = {0};
    for (int i = 1; i <= n_pages; i++) {
        read_text(text_of(which, n_common), (i - 1) * PAGE_TOKENS, i * PAGE_TOKENS);
        prefixes_keep(prefixes, &place, session, (i - 1) * PAGE_TOKENS);
        if (i % apart == 0)
            assert_true(prefixes_keep_state(prefixes, &place, session, &(struct prefix_place){0}));
    }
}

static void test_only_checkpoints_lead_on(void **state)
{
    (void)state;
    read_with_states(1, 64, 7, 3);
    struct prefix prefix = prefixes_find(prefixes, text_of(1, 64), CONTEXT);
    assert_int_equal(prefix.n_pages, 6);
    assert_non_null(prefix.state);
    assert_int_equal(prefixes_find(prefixes, text_of(1, 64), 6 * PAGE_TOKENS - 1).n_pages, 3);
    assert_int_equal(prefixes_find(prefixes, text_of(2, 64), CONTEXT).n_pages, 3);
    prefix = prefixes_find(prefixes, text_of(2, 40), CONTEXT);
    assert_int_equal(prefix.n_pages, 0);
    assert_null(prefix.state);
}

// A session is where it says, or nothing is kept.
static void test_checkpoints_stand_where_the_session_does(void **state)
{
    (void)state;
    struct prefix_place place = {0};
    const uint64_t before = prefixes_bytes(prefixes);
    assert_false(prefixes_keep_state(prefixes, &place, session, &place));
    read_text(text_of(1, 0), 0, 2 * PAGE_TOKENS + 1);
    prefixes_keep(prefixes, &place, session, 0);
    const uint64_t pages = prefixes_bytes(prefixes);
    assert_false(prefixes_keep_state(prefixes, &place, session, &(struct prefix_place){0}));
    assert_int_equal(prefixes_bytes(prefixes), pages);
    assert_true(pages > before);
}

// What moves on takes no more memory, and leaves nothing behind.
static void test_a_checkpoint_moves(void **state)
{
    (void)state;
    struct prefix_place place = {0}, last = {0};
    uint64_t bytes = 0;
    for (int i = 1; i <= 8; i++) {
        read_text(text_of(1, 0), (i - 1) * PAGE_TOKENS, i * PAGE_TOKENS);
        prefixes_keep(prefixes, &place, session, (i - 1) * PAGE_TOKENS);
        assert_true(prefixes_keep_state(prefixes, &place, session, &last));
        last = place;
        assert_true(i == 1 || prefixes_bytes(prefixes) < bytes + state_bytes);
        bytes = prefixes_bytes(prefixes);
    }
    assert_int_equal(kept(1, 0), 8);
    assert_int_equal(prefixes_find(prefixes, text_of(1, 0), 8 * PAGE_TOKENS - 1).n_pages, 0);
}

// Half of the memory holds six. What has to give way is what saves least, and of equals what was used longest ago.
static void test_states_of_least_worth_give_way(void **state)
{
    (void)state;
    read_with_states(1, 0, 10, 10);
    read_with_states(2, 0, 4, 1);
    for (int i = 1; i <= 4; i++)
        assert_int_equal(prefixes_find(prefixes, text_of(2, 0), (size_t)i * PAGE_TOKENS).n_pages, i);
    read_with_states(3, 0, 9, 3);
    assert_true(prefixes_bytes(prefixes) <= 12 * state_bytes);
    for (int i = 3; i <= 9; i += 3)
        assert_int_equal(prefixes_find(prefixes, text_of(3, 0), (size_t)i * PAGE_TOKENS).n_pages, i);
    assert_int_equal(kept(1, 0), 10);
    int left = 0;
    for (int i = 1; i <= 4; i++)
        left += prefixes_find(prefixes, text_of(2, 0), (size_t)i * PAGE_TOKENS).n_pages == (size_t)i;
    assert_int_equal(left, 2);
    for (int which = 4; which < 90; which++) // conversations of little worth, of which each is used once
        read_with_states(which, 0, 1, 1);
    assert_int_equal(kept(89, 0), 1);
    assert_int_equal(kept(1, 0), 0); // what has not been used for long goes at last
}

// More conversations than half of the memory has room for all of: each goes on from its last checkpoint.
static void test_last_checkpoints_stay(void **state)
{
    (void)state;
    for (int which = 1; which <= 5; which++)
        read_with_states(which, 0, 2, 1);
    for (int which = 1; which <= 5; which++)
        assert_int_equal(kept(which, 0), 2);
}

// ---------------------------------------------------------------- files

static char folder[] = "/tmp/yalm-prefixes-XXXXXX", file_path[300];

static int set_up_files(void **state)
{
    return mkdtemp(folder) ? set_up_recurrent(state) : 1;
}

static int set_up_convolution_files(void **state)
{
    return mkdtemp(folder) ? set_up_convolution(state) : 1;
}

static int set_up_kda_files(void **state)
{
    return mkdtemp(folder) ? set_up_kda(state) : 1;
}

static int tear_down_files(void **state)
{
    unlink(file_path);
    rmdir(folder);
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    return tear_down(state);
}

static void save(void)
{
    yalm_error error = {0};
    if (prefixes_save(prefixes, folder, &error) != YALM_OK)
        fail_msg("%s", error.text);
    DIR *listed = opendir(folder);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(listed));)
        if (entry->d_name[0] != '.') {
            snprintf(file_path, sizeof file_path, "%s/%s", folder, entry->d_name);
            n++;
        }
    closedir(listed);
    assert_int_equal(n, 1);
    prefixes_release(prefixes);
}

static void test_one_server_alone_writes_a_file(void **state)
{
    (void)state;
    yalm_error error = {0};
    struct prefixes *other = prefixes_open(session, 12 * state_bytes);
    read_with_states(1, 64, 7, 3);
    save();
    assert_int_equal(prefixes_load(prefixes, folder, &error), YALM_OK);
    assert_int_equal(prefixes_load(prefixes, folder, &error), YALM_OK);
    assert_int_equal(prefixes_load(other, folder, &error), YALM_FAILED);
    assert_non_null(strstr(error.text, "another server keeps"));
    assert_int_equal(prefixes_find(other, text_of(1, 64), CONTEXT).n_pages, 6); // it reads what is there
    assert_int_equal(prefixes_save(other, folder, &error), YALM_FAILED);
    assert_non_null(strstr(error.text, "is not kept"));
    prefixes_release(prefixes); // the first one ends
    assert_int_equal(prefixes_save(other, folder, &error), YALM_OK);
    prefixes_close(other);
}

// What a tree that has taken in the file finds of the sequences, in so much memory; the error's text comes to lie in *said.
static yalm_status load(uint64_t bytes, yalm_error *said, size_t found[3])
{
    struct prefixes *own = prefixes_open(session, bytes);
    *said = (yalm_error){0};
    const yalm_status status = prefixes_load(own, folder, said);
    assert_true(prefixes_bytes(own) <= bytes);
    for (int i = 0; i < 3; i++) {
        const struct prefix prefix = prefixes_find(own, text_of(i + 1, 64), CONTEXT),
                            right = prefixes_find(prefixes, text_of(i + 1, 64), CONTEXT);
        found[i] = prefix.n_pages;
        for (size_t page = 0; page < prefix.n_pages && page < right.n_pages; page++)
            assert_memory_equal(prefix.pages[page], right.pages[page], yalm_page_bytes(session, PAGE_TOKENS));
        if (prefix.n_pages == right.n_pages && right.n_pages)
            assert_memory_equal(prefix.state, right.state, state_bytes);
    }
    prefixes_close(own);
    return status;
}

static void test_files(void **state)
{
    (void)state;
    yalm_error said;
    size_t found[3];
    assert_int_equal(load(room, &said, found), YALM_OK); // there is none yet
    assert_int_equal(found[0] + found[1] + found[2], 0);
    read_with_states(1, 64, 7, 3);
    read_with_states(2, 64, 5, 4);
    save();
    save(); // in the place of the first
    assert_int_equal(load(room, &said, found), YALM_OK);
    assert_int_equal(found[0], 6);
    assert_int_equal(found[1], 4);
    assert_int_equal(found[2], 4);
    struct stat facts;
    assert_int_equal(stat(file_path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    assert_int_equal(load(room / 4, &said, found), YALM_OK); // of three states one may stay
}

// Whatever byte is another, and wherever the file ends: it is said, and nothing that was behind it is believed.
static void test_damaged_files(void **state)
{
    (void)state;
    read_with_states(1, 64, 4, 1);
    save();
    struct stat facts;
    assert_int_equal(stat(file_path, &facts), 0);
    uint8_t *bytes = malloc((size_t)facts.st_size);
    FILE *file = fopen(file_path, "rb");
    assert_int_equal(fread(bytes, 1, (size_t)facts.st_size, file), facts.st_size);
    fclose(file);
    size_t found[3], least = 4, most = 0;
    for (long at = 0; at < facts.st_size; at += at < 200 ? 1 : 977)
        for (int cut = 0; cut < 2; cut++) {
            yalm_error said;
            bytes[at] ^= 0x10;
            file = fopen(file_path, "wb");
            fwrite(bytes, 1, cut ? (size_t)at : (size_t)facts.st_size, file);
            fclose(file);
            bytes[at] ^= 0x10;
            assert_int_equal(load(room, &said, found), YALM_FAILED);
            assert_non_null(strstr(said.text, ".pages: "));
            least = found[0] < least ? found[0] : least;
            most = found[0] > most ? found[0] : most;
        }
    assert_int_equal(least, 0);
    assert_int_equal(most, 3);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_beginnings_are_shared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_oldest_end_gives_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_places, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tokens_taken_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_checkpoints_lead_on, set_up_recurrent, tear_down),
        cmocka_unit_test_setup_teardown(test_only_checkpoints_lead_on, set_up_convolution, tear_down),
        cmocka_unit_test_setup_teardown(test_only_checkpoints_lead_on, set_up_kda, tear_down),
        cmocka_unit_test_setup_teardown(test_checkpoints_stand_where_the_session_does, set_up_recurrent, tear_down),
        cmocka_unit_test_setup_teardown(test_a_checkpoint_moves, set_up_recurrent, tear_down),
        cmocka_unit_test_setup_teardown(test_states_of_least_worth_give_way, set_up_recurrent, tear_down),
        cmocka_unit_test_setup_teardown(test_last_checkpoints_stay, set_up_recurrent, tear_down),
        cmocka_unit_test_setup_teardown(test_files, set_up_files, tear_down_files),
        cmocka_unit_test_setup_teardown(test_files, set_up_convolution_files, tear_down_files),
        cmocka_unit_test_setup_teardown(test_files, set_up_kda_files, tear_down_files),
        cmocka_unit_test_setup_teardown(test_one_server_alone_writes_a_file, set_up_files, tear_down_files),
        cmocka_unit_test_setup_teardown(test_damaged_files, set_up_files, tear_down_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
