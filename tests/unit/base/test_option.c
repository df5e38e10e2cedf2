// SPDX-License-Identifier: Apache-2.0
#include "base/option.h"

#include <errno.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

struct values {
    char *text, *path;
    struct option_list list;
    int64_t number;
    uint64_t wait_ns;
    bool truth, on, number_given;
};

#define AT(member) offsetof(struct values, member)
#define NONE ((size_t)-1)

static const struct option_row rows[] = {
    {"text", "t", "X_TEXT", OPTION_STRING, AT(text), NONE, "initial", 0, 0, "First", "A text.",
     false},
    {"path", NULL, NULL, OPTION_STRING, AT(path), NONE, NULL, 0, 0, "First", "A path.", false},
    {"names", NULL, "X_NAMES", OPTION_LIST, AT(list), NONE, NULL, 0, 0, "First", "Names.", false},
    {"number", "n", "X_NUMBER", OPTION_INT, AT(number), AT(number_given), "30", -5, 1000, "Second",
     "A number.", false},
    {"wait", NULL, "X_WAIT", OPTION_DURATION, AT(wait_ns), NONE, "10s", 0, 0, "Second", "A time.",
     false},
    {"truth", "rbmn", "X_TRUTH", OPTION_BOOL, AT(truth), NONE, NULL, 0, 0, "Second", "A truth.",
     true},
    {"on", NULL, "X_ON", OPTION_BOOL, AT(on), NONE, "true", 0, 0, "Second", "On.", false},
};
static const struct option_table table = {"tester", "Tests options.", rows, ARRAY_SIZE(rows)};

// Words and variables are parted by spaces; "_" stands for an empty one.
static int parse(const char *words, const char *variables, struct values *v, int *first,
                 struct error *err)
{
    static char storage[2][1024];
    static char *argv[32], *environ_words[32];
    int argc = 0, count = 0;
    *v = (struct values){0};
    sv_copy(storage[0], sizeof(storage[0]), sv_from(words));
    sv_copy(storage[1], sizeof(storage[1]), sv_from(variables));
    argv[argc++] = "tester";
    for (char *save = NULL, *w = strtok_r(storage[0], " ", &save); w;
         w = strtok_r(NULL, " ", &save))
        argv[argc++] = strcmp(w, "_") == 0 ? "" : w;
    for (char *save = NULL, *w = strtok_r(storage[1], " ", &save); w;
         w = strtok_r(NULL, " ", &save))
        environ_words[count++] = w;
    environ_words[count] = NULL;
    return option_parse(&table, argc, argv, environ_words, v, first, err);
}

static void defaults_hold_when_nothing_is_given(void **state)
{
    struct values v;
    int first = -1;
    assert_int_equal(parse("", "", &v, &first, NULL), 0);
    assert_string_equal(v.text, "initial");
    assert_string_equal(v.path, "");
    assert_int_equal(v.list.count, 0);
    assert_int_equal(v.number, 30);
    assert_int_equal(v.wait_ns, 10 * NS_PER_S);
    assert_false(v.truth);
    assert_true(v.on);
    assert_false(v.number_given);
    assert_int_equal(first, 1);
    option_deinit(&table, &v);
}

static void all_forms_of_a_flag_are_equal(void **state)
{
    static const char *const forms[] = {"-number 7", "--number 7", "-number=7", "--number=7",
                                        "-n 7",      "--n=7",      "-n=0x7",    "-n 3 -n 7"};
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        struct values v;
        assert_int_equal(parse(forms[i], "", &v, NULL, NULL), 0);
        assert_int_equal(v.number, 7);
        assert_true(v.number_given);
        option_deinit(&table, &v);
    }
}

static void booleans_need_an_equals_sign_for_a_value(void **state)
{
    struct values v;
    int first = -1;
    assert_int_equal(parse("--truth false", "", &v, &first, NULL), 0);
    assert_true(v.truth);
    assert_int_equal(first, 2);
    option_deinit(&table, &v);
    assert_int_equal(parse("-rbmn --on=F", "", &v, &first, NULL), 0);
    assert_true(v.truth);
    assert_false(v.on);
    assert_int_equal(first, 3);
    option_deinit(&table, &v);
}

static void parsing_stops_at_the_first_positional(void **state)
{
    static const struct {
        const char *words;
        int first;
        int64_t number;
    } cases[] = {
        {"-n 1 word -n 2", 3, 1},
        {"-n 1 -- -n 2", 4, 1},
        {"- -n 2", 1, 30},
        {"-n 1 _ -n 2", 3, 1},
        {"--", 2, 30},
        {"--text -- word", 3, 30}, // a value may look like anything
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct values v;
        int first = -1;
        assert_int_equal(parse(cases[i].words, "", &v, &first, NULL), 0);
        assert_int_equal(first, cases[i].first);
        assert_int_equal(v.number, cases[i].number);
        option_deinit(&table, &v);
    }
}

static void lists_are_split_trimmed_and_repeatable(void **state)
{
    struct values v;
    assert_int_equal(parse("--names a,b,,\tc --names=d", "X_NAMES=z", &v, NULL, NULL), 0);
    static const char *const items[] = {"a", "b", "c", "d"};
    assert_int_equal(v.list.count, ARRAY_SIZE(items));
    for (size_t i = 0; i < ARRAY_SIZE(items); i++)
        assert_string_equal(v.list.items[i], items[i]);
    option_deinit(&table, &v);
}

static void the_command_line_beats_the_environment_beats_the_default(void **state)
{
    struct values v;
    assert_int_equal(
        parse("-n 1", "X_NUMBER=2 X_TEXT=env X_TRUTH=1 X_WAIT=5ms OTHER=1", &v, NULL, NULL), 0);
    assert_int_equal(v.number, 1);
    assert_string_equal(v.text, "env");
    assert_true(v.truth);
    assert_int_equal(v.wait_ns, 5 * NS_PER_MS);
    option_deinit(&table, &v);
    assert_int_equal(parse("", "X_NUMBER=2 X_NUMBERS=3", &v, NULL, NULL), 0);
    assert_int_equal(v.number, 2);
    assert_true(v.number_given);
    option_deinit(&table, &v);
    // A variable that a flag overrides is not even looked at.
    assert_int_equal(parse("-n 1", "X_NUMBER=abc", &v, NULL, NULL), 0);
    option_deinit(&table, &v);
}

static void an_empty_variable_empties_texts_and_leaves_numbers(void **state)
{
    struct values v;
    assert_int_equal(parse("", "X_NUMBER= X_TEXT= X_ON= X_NAMES= X_WAIT=", &v, NULL, NULL), 0);
    assert_int_equal(v.number, 30);
    assert_false(v.number_given);
    assert_string_equal(v.text, "");
    assert_false(v.on);
    assert_int_equal(v.list.count, 0);
    assert_int_equal(v.wait_ns, 10 * NS_PER_S);
    option_deinit(&table, &v);
}

static void help_and_version_are_outcomes(void **state)
{
    static const char *const help[] = {"-h",   "--h", "-help",     "--help",
                                       "help", "h",   "-n 1 help", "--help --bogus"};
    struct values v;
    for (size_t i = 0; i < ARRAY_SIZE(help); i++)
        assert_int_equal(parse(help[i], "", &v, NULL, NULL), OPTION_OUTCOME_HELP);
    assert_int_equal(parse("-v", "", &v, NULL, NULL), OPTION_OUTCOME_VERSION);
    assert_int_equal(parse("--version", "", &v, NULL, NULL), OPTION_OUTCOME_VERSION);
    assert_int_equal(parse("word help", "", &v, NULL, NULL), 0);
    option_deinit(&table, &v);
}

static void mistakes_name_the_flag_and_what_was_expected(void **state)
{
    static const struct {
        const char *words, *variables, *message;
    } cases[] = {
        {"--nmber 1", "", "unknown flag '--nmber' (did you mean '--number'?)"},
        {"-zzzzzz=5", "", "unknown flag '-zzzzzz'; --help lists all"},
        {"--versoin", "", "unknown flag '--versoin' (did you mean '--version'?)"},
        {"---n 1", "", "bad flag syntax '---n'"},
        {"-=1", "", "bad flag syntax '-=1'"},
        {"-n", "", "-n needs a value"},
        {"--text", "", "--text needs a value"},
        {"-n 1.5", "", "-n: expected a whole number from -5 to 1000, found '1.5'"},
        {"--number=1001", "", "--number: expected a whole number from -5 to 1000, found '1001'"},
        {"-n=-6", "", "-n: expected a whole number from -5 to 1000, found '-6'"},
        {"-n _", "", "-n: expected a whole number from -5 to 1000, found ''"},
        {"--truth=yes", "", "--truth: expected true or false, found 'yes'"},
        {"--wait 10", "", "--wait: expected a duration such as 10s or 1m30s, found '10'"},
        {"", "X_NUMBER=abc",
         "X_NUMBER (for --number): expected a whole number from -5 to 1000, found 'abc'"},
        {"", "X_TRUTH=2", "X_TRUTH (for --truth): expected true or false, found '2'"},
        {"-n 1 --number 2", "", "--number and -n are the same flag: give one of them"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct values v;
        struct error err = ERROR_INIT;
        assert_int_equal(parse(cases[i].words, cases[i].variables, &v, NULL, &err), -EINVAL);
        assert_string_equal(err.text, cases[i].message);
        assert_null(v.text);
    }
}

static void a_changed_value_is_told_from_the_default(void **state)
{
    struct values v;
    assert_int_equal(parse("", "", &v, NULL, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_true(option_is_default(&rows[i], &v));
    option_deinit(&table, &v);
    assert_int_equal(parse("-t initial -n 30 --wait 10000ms --truth=0 --on", "", &v, NULL, NULL),
                     0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_true(option_is_default(&rows[i], &v));
    option_deinit(&table, &v);
    assert_int_equal(
        parse("-t x -n 31 --wait 9s --truth --on=0 --path=p --names=a", "", &v, NULL, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_false(option_is_default(&rows[i], &v));
    option_deinit(&table, &v);
}

static void help_comes_from_the_table(void **state)
{
    struct buf out = BUF_INIT(100000);
    option_print_help(&table, &out);
    assert_string_equal(buf_cstr(&out),
                        "Usage: tester [FLAGS]\n"
                        "\n"
                        "Tests options.\n"
                        "\n"
                        "First\n"
                        "  --text TEXT, -t\n"
                        "        A text. Default: initial. Variable: X_TEXT.\n"
                        "  --path TEXT\n"
                        "        A path.\n"
                        "  --names LIST\n"
                        "        Names. Variable: X_NAMES.\n"
                        "\n"
                        "Second\n"
                        "  --number NUMBER, -n\n"
                        "        A number. Default: 30. Variable: X_NUMBER.\n"
                        "  --wait DURATION\n"
                        "        A time. Default: 10s. Variable: X_WAIT.\n"
                        "  --truth, -rbmn\n"
                        "        A truth. Accepted without effect. Variable: X_TRUTH.\n"
                        "  --on\n"
                        "        On. Default: true. Variable: X_ON.\n"
                        "\n"
                        "Other\n"
                        "  --help, -h\n"
                        "        Print this text.\n"
                        "  --version, -v\n"
                        "        Print the version.\n");
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold_when_nothing_is_given),
        cmocka_unit_test(all_forms_of_a_flag_are_equal),
        cmocka_unit_test(booleans_need_an_equals_sign_for_a_value),
        cmocka_unit_test(parsing_stops_at_the_first_positional),
        cmocka_unit_test(lists_are_split_trimmed_and_repeatable),
        cmocka_unit_test(the_command_line_beats_the_environment_beats_the_default),
        cmocka_unit_test(an_empty_variable_empties_texts_and_leaves_numbers),
        cmocka_unit_test(help_and_version_are_outcomes),
        cmocka_unit_test(mistakes_name_the_flag_and_what_was_expected),
        cmocka_unit_test(a_changed_value_is_told_from_the_default),
        cmocka_unit_test(help_comes_from_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
