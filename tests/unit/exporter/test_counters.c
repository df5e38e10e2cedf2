// SPDX-License-Identifier: Apache-2.0
#include "exporter/counters.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/limits.h"

static int add(struct counter_list *l, const char *name, const char *type, const char *help,
               unsigned line, struct error *err)
{
    const struct counter_row row = {
        .name = sv_from(name),
        .type = sv_from(type),
        .help = sv_from(help),
        .file = "c.yaml",
        .line = line,
        .type_line = line,
        .help_line = line,
    };
    return counters_add(l, &row, err);
}

static struct counter_list parsed(const char *text, size_t len)
{
    struct counter_list list = {0};
    struct error err = ERROR_INIT;
    if (counters_parse((struct sv){text, len}, "c.csv", &list, &err) != 0)
        fail_msg("line %u column %u: %s", err.line, err.column, err.text);
    return list;
}

#define PARSED(literal) parsed((literal), sizeof(literal) - 1)

static void a_row_keeps_name_type_and_help_as_spelled(void **state)
{
    (void)state;
    struct counter_list l = PARSED("DCGM_FI_DEV_GPU_TEMP, gauge, temperature");
    assert_int_equal(l.count, 1);
    assert_int_equal(l.rows[0].field->id, 150);
    assert_string_equal(l.rows[0].name, "DCGM_FI_DEV_GPU_TEMP");
    assert_string_equal(l.rows[0].type_text, "gauge");
    assert_string_equal(l.rows[0].help, "temperature");
    assert_int_equal(l.rows[0].type, COUNTER_GAUGE);
    assert_int_equal(l.rows[0].line, 1);
    counter_list_deinit(&l);

    l = PARSED("dcgm_gpu_temp,gauge,x\n");
    assert_string_equal(l.rows[0].name, "dcgm_gpu_temp"); // never the canonical name
    assert_int_equal(l.rows[0].field->id, 150);
    counter_list_deinit(&l);
}

// What Go's encoding/csv makes of it with Comment = '#', and then dcgm-exporter's trimming.
static void the_grammar_is_that_of_go(void **state)
{
    (void)state;
    static const struct {
        const char *text, *help; // of DCGM_FI_DEV_GPU_TEMP
    } cases[] = {
        {"DCGM_FI_DEV_GPU_TEMP,gauge,h", "h"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,h\n", "h"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,h\r\n", "h"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,h\r", "h"},       // dropped at the end of the file
        {"DCGM_FI_DEV_GPU_TEMP,gauge,h\ri\n", "h\ri"}, // not at the end of a line: data
        {"DCGM_FI_DEV_GPU_TEMP ,  gauge  ,  h h  ", "h h"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\th\t", "\th\t"}, // spaces only are trimmed
        {"DCGM_FI_DEV_GPU_TEMP,gauge,", ""},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,  ", ""},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"a, b\"", "a, b"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"a \"\"b\"\"\"", "a \"b\""},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"\"", ""},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"\"\"\"", "\""},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"  a  \"", "a"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"a\nb\"\n", "a\nb"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"a\r\nb\"\r\n", "a\nb"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"a\n\n#b\"\n", "a\n\n#b"}, // no comment inside quotes
        {"\"DCGM_FI_DEV_GPU_TEMP\",\"gauge\",\"h\"", "h"},
        {"\" DCGM_FI_DEV_GPU_TEMP \",gauge,h", "h"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,#h", "#h"},
        {"#DCGM_FI_DEV_GPU_TEMP,gauge,\"\n\n\r\nDCGM_FI_DEV_GPU_TEMP,gauge,h\n#\n\n", "h"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\xc3\xa9", "\xc3\xa9"},
        {"\xef\xbb\xbf"
         "DCGM_FI_DEV_GPU_TEMP,gauge,h",
         "h"}, // a byte order mark is ours to forgive
        {"\xef\xbb\xbf# c\nDCGM_FI_DEV_GPU_TEMP,gauge,h", "h"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct counter_list l = parsed(cases[i].text, strlen(cases[i].text));
        assert_int_equal(l.count, 1);
        assert_string_equal(l.rows[0].help, cases[i].help);
        counter_list_deinit(&l);
    }
}

static void a_file_without_records_has_no_counters(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\n", "\r\n\r\n", "# only\n#comments", "\r"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct counter_list l = parsed(texts[i], strlen(texts[i]));
        assert_int_equal(l.count, 0);
        counter_list_deinit(&l);
    }
}

static void each_mistake_is_told_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned line, column;
        const char *message;
    } cases[] = {
        {"DCGM_FI_DEV_GPU_TMP,gauge,x", 1, 1,
         "unknown field 'DCGM_FI_DEV_GPU_TMP'; the nearest known one is 'DCGM_FI_DEV_GPU_TEMP'"},
        {"# c\n\nDCGM_EXP_XID_ERRORS_COUNTXXX, gauge, temperature", 3, 1,
         "unknown field 'DCGM_EXP_XID_ERRORS_COUNTXXX'; the nearest known one is "
         "'DCGM_EXP_XID_ERRORS_COUNT'"},
        {"dcgm_fi_dev_gpu_temp,gauge,x", 1, 1,
         "unknown field 'dcgm_fi_dev_gpu_temp'; the nearest known one is 'DCGM_FI_DEV_GPU_TEMP'"},
        {"DCGM_FI_DEV_GPU_TEMP\t,gauge,x", 1, 1,
         "only spaces may stand beside 'DCGM_FI_DEV_GPU_TEMP', but found a tab or a line break"},
        {"DCGM_FI_FOO_BARBAZ,gauge,x", 1, 1,
         "unknown field 'DCGM_FI_FOO_BARBAZ': there is none of that name, nor one like it"},
        {"node_load1,gauge,x", 1, 1,
         "unknown field 'node_load1'; expected a DCGM_FI_*, DCGM_EXP_* or dcgm_* name"},
        {" #DCGM_FI_DEV_GPU_TEMP,gauge,x", 1, 1,
         "unknown field '#DCGM_FI_DEV_GPU_TEMP'; the nearest known one is 'DCGM_FI_DEV_GPU_TEMP'"},
        {",gauge,x", 1, 1, "expected the name of a field, but found none"},
        {"DCGM_FI_DEV_GPU_TEMP,gauges,x", 1, 22,
         "unknown type 'gauges'; expected gauge, counter, histogram, summary or label"},
        {"DCGM_FI_DEV_GPU_TEMP,Gauge,x", 1, 22,
         "unknown type 'Gauge'; expected gauge, counter, histogram, summary or label"},
        {"DCGM_FI_DEV_GPU_TEMP,,x", 1, 22,
         "unknown type ''; expected gauge, counter, histogram, summary or label"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge", 1, 1, "expected 3 fields (name, type, help), but found 2"},
        {"DCGM_FI_DEV_GPU_TEMP", 1, 1, "expected 3 fields (name, type, help), but found 1"},
        {"   ", 1, 1, "expected 3 fields (name, type, help), but found 1"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,a, b", 1, 1,
         "expected 3 fields (name, type, help), but found 4 (a help text with a comma in it must "
         "be quoted)"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,x\nDCGM_FI_DEV_SM_CLOCK,gauge\n", 2, 1,
         "expected 3 fields (name, type, help), but found 2"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge, \"x\"", 1, 29,
         "found '\"' inside a field: a quoted field must begin with it, right behind the comma"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,a\"b", 1, 29,
         "found '\"' inside a field: a quoted field must begin with it, right behind the comma"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"a\"b", 1, 31,
         "expected a comma or the end of the line behind a closing '\"', but found 'b'"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"a\" ", 1, 31,
         "expected a comma or the end of the line behind a closing '\"', but found ' '"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"a\nb\"c", 2, 3,
         "expected a comma or the end of the line behind a closing '\"', but found 'c'"},
        {"\nDCGM_FI_DEV_GPU_TEMP,gauge,\"a\n\n", 2, 28,
         "the quoted field that begins here is never closed"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\"", 1, 28,
         "the quoted field that begins here is never closed"},
        {"\"DCGM_FI_DEV_GPU_TEMP\n\",x,y", 1, 1,
         "only spaces may stand beside 'DCGM_FI_DEV_GPU_TEMP', but found a tab or a line break"},
        {"DCGM_FI_DEV_GPU_TEMP,gauge,\xe9t\xe9", 1, 28, "the help is not UTF-8 text"},
        {"DCGM_EXP_P2P_STATUS,\"a\nb\",x", 1, 21, "control character in the type"},
        {"DCGM_EXP_P2P_STATUS,\xff,x", 1, 21, "the type is not UTF-8 text"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct counter_list l = {0};
        struct error err = ERROR_INIT;
        assert_int_equal(counters_parse(sv_from(cases[i].text), "c.csv", &l, &err), -EINVAL);
        assert_string_equal(err.text, cases[i].message);
        assert_string_equal(err.file, "c.csv");
        assert_int_equal(err.line, cases[i].line);
        assert_int_equal(err.column, cases[i].column);
        assert_null(l.rows);
    }
}

static void nul_bytes_are_no_text(void **state)
{
    (void)state;
    static const char text[] = "DCGM_FI_DEV_GPU_TEMP,gauge,a\0b\n";
    struct counter_list l = {0};
    struct error err = ERROR_INIT;
    assert_int_equal(counters_parse((struct sv){text, sizeof(text) - 1}, "c.csv", &l, &err),
                     -EINVAL);
    assert_string_equal(err.text, "the help is not UTF-8 text");
}

static void each_type_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum counter_type type;
    } cases[] = {
        {"gauge", COUNTER_GAUGE},         {"counter", COUNTER_COUNTER},
        {"histogram", COUNTER_HISTOGRAM}, {"summary", COUNTER_SUMMARY},
        {"label", COUNTER_LABEL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct counter_list l = {0};
        struct error err = ERROR_INIT;
        assert_int_equal(add(&l, "DCGM_FI_DEV_GPU_TEMP", cases[i].text, "h", 4, &err), 0);
        assert_int_equal(l.rows[0].type, cases[i].type);
        assert_string_equal(l.rows[0].type_text, cases[i].text);
        counter_list_deinit(&l);
    }
}

static void own_counters_and_the_placeholder_take_any_type(void **state)
{
    (void)state;
    struct counter_list l =
        PARSED("DCGM_EXP_XID_ERRORS_COUNT,whatever,x\nDCGM_FI_UNKNOWN, , y\n"
               "DCGM_EXP_CLOCK_EVENTS_COUNT,gauge,z\nDCGM_EXP_P2P_STATUS,label,w\n");
    assert_int_equal(l.count, 4);
    assert_int_equal(l.rows[0].field->id, 0);
    assert_int_equal(l.rows[0].type, COUNTER_OTHER);
    assert_string_equal(l.rows[0].type_text, "");
    assert_int_equal(l.rows[1].field->id, 9001);
    assert_int_equal(l.rows[1].type, COUNTER_OTHER);
    assert_string_equal(l.rows[1].type_text, "whatever");
    assert_int_equal(l.rows[2].field->id, 9002);
    assert_int_equal(l.rows[2].type, COUNTER_GAUGE);
    assert_int_equal(l.rows[3].type, COUNTER_OTHER); // a label is a field of DCGM's
    counter_list_deinit(&l);
}

static void profiling_rows_stay(void **state)
{
    (void)state;
    struct counter_list l = PARSED("DCGM_FI_PROF_GR_ENGINE_ACTIVE,gauge,x\n");
    assert_int_equal(l.count, 1);
    assert_int_equal(l.rows[0].field->id, 1001);
    counter_list_deinit(&l);
}

static void the_first_row_of_a_field_wins_and_the_others_are_counted(void **state)
{
    (void)state;
    struct counter_list l = PARSED("dcgm_fi_prof_pcie_tx_bytes,counter,first\n"
                                   "DCGM_FI_PROF_PCIE_RX_BYTES,gauge,x\n"
                                   "dcgm_fi_prof_pcie_tx_bytes,counter,second\n"
                                   "DCGM_FI_PROF_PCIE_TX_BYTES,gauge,third\n");
    assert_int_equal(l.count, 2);
    assert_int_equal(l.duplicates, 2);
    assert_string_equal(l.rows[0].help, "first");
    assert_int_equal(l.rows[0].line, 1);
    counter_list_deinit(&l);
    // A duplicate must still be well formed.
    struct error err = ERROR_INIT;
    assert_int_equal(
        counters_parse(SV("dcgm_gpu_temp,gauge,a\ndcgm_gpu_temp,no,b\n"), "c.csv", &l, &err),
        -EINVAL);
    assert_int_equal(err.line, 2);
}

static void rows_come_in_the_order_of_field_ids(void **state)
{
    (void)state;
    struct counter_list l =
        PARSED("DCGM_FI_PROF_DRAM_ACTIVE,gauge,a\nDCGM_FI_DEV_SM_CLOCK,gauge,b\n"
               "DCGM_EXP_P2P_STATUS,gauge,c\nDCGM_FI_DRIVER_VERSION,label,d\n"
               "DCGM_FI_DEV_FB_USED,gauge,e\n");
    static const uint16_t order[] = {1, 100, 252, 1005, 9004};
    assert_int_equal(l.count, ARRAY_SIZE(order));
    for (size_t i = 0; i < ARRAY_SIZE(order); i++)
        assert_int_equal(l.rows[i].field->id, order[i]);
    assert_int_equal(l.rows[0].line, 4);
    counter_list_deinit(&l);
}

static void rows_from_elsewhere_follow_the_same_rules(void **state)
{
    (void)state;
    struct counter_list l = {0};
    struct error err = ERROR_INIT;
    assert_int_equal(add(&l, "DCGM_FI_DEV_FB_USED", "gauge", "a, \"b\"", 9, &err), 0);
    assert_int_equal(add(&l, "DCGM_FI_DEV_GPU_TEMP", "gauge", "c", 11, &err), 0);
    assert_int_equal(add(&l, "dcgm_fb_used", "gauge", "c", 12, &err), 0);
    assert_int_equal(l.duplicates, 1);
    assert_string_equal(l.rows[0].help, "a, \"b\"");
    assert_int_equal(l.rows[0].line, 9);
    counters_sort(&l);
    assert_int_equal(l.rows[0].field->id, 150);
    assert_int_equal(add(&l, "DCGM_FI_DEV_FB_USD", "gauge", "", 13, &err), -EINVAL);
    assert_int_equal(err.line, 13);
    assert_int_equal(err.column, 0);
    assert_string_equal(err.file, "c.yaml");
    assert_int_equal(l.count, 2);
    counter_list_deinit(&l);
}

static void every_field_at_once_fits(void **state)
{
    (void)state;
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    for (size_t i = field_table_count; i-- > 0;)
        buf_add_fmt(&text, "%s,gauge,%zu\n", field_table[i].name, i);
    struct counter_list l = parsed(text.data, text.len);
    assert_int_equal(l.count, field_table_count);
    for (size_t i = 0; i < l.count; i++)
        assert_ptr_equal(l.rows[i].field, &field_table[i]);
    assert_true(field_table_count <= LIMIT_COUNTERS);
    counter_list_deinit(&l);
    buf_deinit(&text);
}

static void a_record_is_as_long_as_the_limit_and_no_longer(void **state)
{
    (void)state;
    const size_t before = sizeof("DCGM_FI_DEV_GPU_TEMPgauge") - 1; // the commas are not kept
    for (size_t help = LIMIT_COUNTER_LINE_BYTES - before - 1;
         help <= LIMIT_COUNTER_LINE_BYTES - before + 1; help++) {
        struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
        buf_add_str(&text, "\nDCGM_FI_DEV_GPU_TEMP,gauge,");
        for (size_t i = 0; i < help; i++)
            buf_add_char(&text, 'h');
        struct counter_list l = {0};
        struct error err = ERROR_INIT;
        int rc = counters_parse(buf_sv(&text), "c.csv", &l, &err);
        if (help + before <= LIMIT_COUNTER_LINE_BYTES) {
            assert_int_equal(rc, 0);
            assert_int_equal(strlen(l.rows[0].help), help);
        } else {
            assert_int_equal(rc, -E2BIG);
            assert_string_equal(err.text, "record of more than 4096 bytes");
            assert_int_equal(err.line, 2);
        }
        counter_list_deinit(&l);
        buf_deinit(&text);
    }
}

static void a_file_cut_anywhere_parses_or_fails_cleanly(void **state)
{
    (void)state;
    static const char text[] = "# c\nDCGM_FI_DEV_GPU_TEMP,gauge,\"a, "
                               "\"\"b\"\"\r\nc\"\r\n\nDCGM_FI_DRIVER_VERSION ,label , d\n";
    for (size_t cut = 0; cut < sizeof(text); cut++) {
        char *copy = malloc(cut ? cut : 1); // no NUL behind it
        assert_non_null(copy);
        memcpy(copy, text, cut);
        struct counter_list l = {0};
        struct error err = ERROR_INIT;
        int rc = counters_parse((struct sv){copy, cut}, "c.csv", &l, &err);
        assert_true(rc == 0 || (rc == -EINVAL && err.text[0] && err.line));
        counter_list_deinit(&l);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_keeps_name_type_and_help_as_spelled),
        cmocka_unit_test(the_grammar_is_that_of_go),
        cmocka_unit_test(a_file_without_records_has_no_counters),
        cmocka_unit_test(each_mistake_is_told_with_its_place),
        cmocka_unit_test(nul_bytes_are_no_text),
        cmocka_unit_test(each_type_is_known),
        cmocka_unit_test(own_counters_and_the_placeholder_take_any_type),
        cmocka_unit_test(profiling_rows_stay),
        cmocka_unit_test(the_first_row_of_a_field_wins_and_the_others_are_counted),
        cmocka_unit_test(rows_come_in_the_order_of_field_ids),
        cmocka_unit_test(rows_from_elsewhere_follow_the_same_rules),
        cmocka_unit_test(every_field_at_once_fits),
        cmocka_unit_test(a_record_is_as_long_as_the_limit_and_no_longer),
        cmocka_unit_test(a_file_cut_anywhere_parses_or_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
