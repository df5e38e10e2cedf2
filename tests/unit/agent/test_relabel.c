// SPDX-License-Identifier: Apache-2.0
#include "agent/relabel.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/config_reader.h"
#include "base/limits.h"
#include "codec/hash.h"

// --- Applying: labels are "name=value name=value", rules are YAML ---

static void set_all(struct labels *l, const char *text)
{
    struct sv rest = sv_from(text), pair;
    while (sv_next(&rest, ' ', &pair)) {
        size_t equals = sv_find_char(pair, '=');
        assert_int_equal(labels_set(l, sv_sub(pair, 0, equals), sv_sub(pair, equals + 1, pair.len)),
                         0);
    }
}

static void show(const struct labels *l, struct buf *out)
{
    for (size_t i = 0; i < l->count; i++)
        buf_add_fmt(out, "%s%.*s=%.*s", i ? " " : "", SV_FMT(l->items[i].name),
                    SV_FMT(l->items[i].value));
}

static struct relabel_rules *read_rules(const char *yaml)
{
    struct yaml_document *d = NULL;
    struct relabel_rules *rules = NULL;
    struct error err = ERROR_INIT;
    char text[1024];
    int r = yaml_parse(sv_from(yaml), "f", &d, &err);
    if (r == 0)
        r = relabel_parse(yaml_root(d), "f", &rules, &err);
    if (r < 0)
        fail_msg("%s\n%s", yaml, error_text(&err, text, sizeof(text)));
    yaml_document_free(d); // the rules stand alone
    return rules;
}

#define DROPPED NULL

static void check(const char *labels, const char *yaml, const char *expected)
{
    struct arena arena = ARENA_INIT(1u << 20);
    struct labels l;
    struct buf out = BUF_INIT(10000);
    struct relabel_rules *rules = read_rules(yaml);
    labels_init(&l, &arena);
    set_all(&l, labels);
    int r = relabel_apply(rules, &l);
    relabel_free(rules); // the labels stand alone
    if (!expected) {
        if (r != RELABEL_OUTCOME_DROP)
            fail_msg("not dropped: %s\n%s", labels, yaml);
    } else {
        assert_int_equal(r, 0);
        show(&l, &out);
        if (!sv_equals(buf_sv(&out), sv_from(expected)) && (out.len || *expected))
            fail_msg("%s\n%s\n%s, expected %s", labels, yaml, buf_cstr(&out), expected);
    }
    buf_deinit(&out);
    arena_deinit(&arena);
}

// The cases of Prometheus' own tests of relabelling.
static void rules_do_what_they_do_in_prometheus(void **state)
{
    static const struct {
        const char *labels, *rules, *result;
    } cases[] = {
        {"a=foo b=bar c=baz",
         "- {source_labels: [a], regex: f(.*), target_label: d, replacement: 'ch${1}-ch${1}', "
         "separator: ;}",
         "a=foo b=bar c=baz d=choo-choo"},
        {"a=foo b=bar c=baz",
         "- {source_labels: [a, b], regex: 'f(.*);(.*)r', target_label: a, replacement: "
         "'b${1}${2}m'}\n"
         "- {source_labels: [c, a], regex: '(b).*b(.*)ba(.*)', target_label: d, replacement: "
         "$1$2$2$3}",
         "a=boobam b=bar c=baz d=boooom"},
        {"a=foo",
         "- {source_labels: [a], regex: .*o.*, action: drop}\n"
         "- {source_labels: [a], regex: f(.*), target_label: d, replacement: 'ch$1-ch$1'}",
         DROPPED},
        {"a=foo b=bar", "- {source_labels: [a], regex: .*o.*, action: drop}", DROPPED},
        {"a=abc", "- {source_labels: [a], regex: .*(b).*, target_label: d, replacement: $1}",
         "a=abc d=b"},
        {"a=foo", "- {source_labels: [a], regex: no-match, action: drop}", "a=foo"},
        {"a=foo", "- {source_labels: [a], regex: f|o, action: drop}", "a=foo"},
        {"a=foo", "- {source_labels: [a], regex: no-match, action: keep}", DROPPED},
        {"a=foo", "- {source_labels: [a], regex: f.*, action: keep}", "a=foo"},
        {"a=boo", "- {source_labels: [a], regex: f, target_label: b, replacement: bar}", "a=boo"},
        {"a=foo f=baz", "- {source_labels: [a], regex: (f).*, target_label: $1, replacement: $2}",
         "a=foo"},
        {"c=baz", "- {source_labels: [c], action: hashmod, target_label: d, modulus: 1000}",
         "c=baz d=976"},
        {"a=foo\nbar", "- {source_labels: [a], action: hashmod, target_label: b, modulus: 1000}",
         "a=foo\nbar b=734"},
        {"a=foo b1=bar b2=baz", "- {regex: (b.*), action: labelmap, replacement: 'bar_${1}'}",
         "a=foo b1=bar b2=baz bar_b1=bar bar_b2=baz"},
        {"a=foo __meta_my_bar=aaa __meta_my_baz=bbb __meta_other=ccc",
         "- {regex: __meta_(my.*), action: labelmap, replacement: '${1}'}",
         "__meta_my_bar=aaa __meta_my_baz=bbb __meta_other=ccc a=foo my_bar=aaa my_baz=bbb"},
        {"a=some-name-value",
         "- {source_labels: [a], regex: 'some-([^-]+)-([^,]+)', target_label: '${1}', replacement: "
         "'${2}'}",
         "a=some-name-value name=value"},
        {"a=some-name-value",
         "- {source_labels: [a], regex: 'some-([^-]+)-([^,]+)', target_label: '${1}', replacement: "
         "'${3}'}",
         "a=some-name-value"},
        {"a=some-name-0",
         "- {source_labels: [a], regex: 'some-([^-]+)-([^,]+)', target_label: '${3}', replacement: "
         "'${1}'}",
         "a=some-name-0"},
        {"__meta_sd_tags=path:/secret,job:some-job,label:foo=bar",
         "- {source_labels: [__meta_sd_tags], regex: '(?:.+,|^)path:(/[^,]+).*', target_label: "
         "__metrics_path__}\n"
         "- {source_labels: [__meta_sd_tags], regex: '(?:.+,|^)job:([^,]+).*', target_label: job}\n"
         "- {source_labels: [__meta_sd_tags], regex: '(?:.+,|^)label:([^=]+)=([^,]+).*', "
         "target_label: '${1}', "
         "replacement: '${2}'}",
         "__meta_sd_tags=path:/secret,job:some-job,label:foo=bar __metrics_path__=/secret foo=bar "
         "job=some-job"},
        {"__meta_kubernetes_pod_container_port_name=foo "
         "__meta_kubernetes_pod_annotation_XXX_metrics_port=9091",
         "- {regex: ^__meta_kubernetes_pod_container_port_name$, action: labeldrop}\n"
         "- {source_labels: [__meta_kubernetes_pod_annotation_XXX_metrics_port], regex: (.+), "
         "action: replace, "
         "replacement: metrics, target_label: __meta_kubernetes_pod_container_port_name}\n"
         "- {source_labels: [__meta_kubernetes_pod_container_port_name], regex: ^metrics$, action: "
         "keep}",
         "__meta_kubernetes_pod_annotation_XXX_metrics_port=9091 "
         "__meta_kubernetes_pod_container_port_name=metrics"},
        {"a=foo b1=bar b2=baz", "- {regex: (b.*), action: labelkeep}", "b1=bar b2=baz"},
        {"a=foo b1=bar b2=baz", "- {regex: (b.*), action: labeldrop}", "a=foo"},
        {"foo=bAr123Foo",
         "- {source_labels: [foo], action: uppercase, target_label: foo_uppercase}\n"
         "- {source_labels: [foo], action: lowercase, target_label: foo_lowercase}",
         "foo=bAr123Foo foo_lowercase=bar123foo foo_uppercase=BAR123FOO"},
        {"__tmp_port=1234 __port1=1234 __port2=5678",
         "- {source_labels: [__tmp_port], action: keepequal, target_label: __port1}",
         "__port1=1234 __port2=5678 __tmp_port=1234"},
        {"__tmp_port=1234 __port1=1234 __port2=5678",
         "- {source_labels: [__tmp_port], action: dropequal, target_label: __port1}", DROPPED},
        {"__tmp_port=1234 __port1=1234 __port2=5678",
         "- {source_labels: [__tmp_port], action: keepequal, target_label: __port2}", DROPPED},
        {"__tmp_port=1234 __port1=1234 __port2=5678",
         "- {source_labels: [__tmp_port], action: dropequal, target_label: __port2}",
         "__port1=1234 __port2=5678 __tmp_port=1234"},
        {"a=line1\nline2",
         "- {source_labels: [a], regex: line1.*line2, target_label: d, replacement: 'match${1}'}",
         "a=line1\nline2 d=match"},
        {"a=line1\nline2",
         "- {source_labels: [a], regex: '(line1).*(?<second>line2)', target_label: 'label1_${1}', "
         "replacement: 'val_${second}'}",
         "a=line1\nline2 label1_line1=val_line2"},
        {"utf-8.label=line1\nline2 b=bar c=baz",
         "- {source_labels: [utf-8.label], regex: line1.*line2, target_label: d, replacement: "
         "'match${1}'}",
         "b=bar c=baz d=match utf-8.label=line1\nline2"},
        {"a=line1\nline2 b=bar c=baz",
         "- {source_labels: [a], regex: line1.*line2, target_label: utf-8.label, replacement: "
         "'match${1}'}",
         "a=line1\nline2 b=bar c=baz utf-8.label=match"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check(cases[i].labels, cases[i].rules, cases[i].result);
}

static void defaults_copy_the_joined_values(void **state)
{
    check("a=1 b=2", "- {source_labels: [a, b], target_label: c}", "a=1 b=2 c=1;2");
    check("a=1 b=2", "- {source_labels: [a, x, b], target_label: c, separator: '<>'}",
          "a=1 b=2 c=1<><>2");
    check("a=1 b=2", "- {source_labels: [a, b], target_label: c, separator: ''}", "a=1 b=2 c=12");
    check("a=1 b=2", "- {source_labels: [a, b], target_label: c, separator: }", "a=1 b=2 c=12");
    check("a=1", "- {source_labels: [a], target_label: c, regex: (.*)}", "a=1 c=1");
    check("a=1", "- {source_labels: [a], target_label: c, replacement: '$0-${1}-$2'}",
          "a=1 c=1-1-");
    check("a=1", "- {target_label: c, replacement: constant}", "a=1 c=constant");
    check("a=1", "- {source_labels: [], target_label: c, replacement: constant}", "a=1 c=constant");
    check("a=1", "- {source_labels: , target_label: c, replacement: 5}", "a=1 c=5");
    check("a=1 c=2", "- {source_labels: [x], target_label: c}",
          "a=1"); // nothing replaces it: deleted
    check("a=1 c=2", "- {target_label: c, replacement: ''}", "a=1");
    check("a=1 c=2", "- {target_label: c, replacement: }", "a=1");
    check("a=1 c=2", "- {source_labels: [a], target_label: c, regex: }",
          "a=1 c=2"); // matches the empty value only
    check("a=1 c=2", "- {source_labels: [x], target_label: c, regex: '', replacement: y}",
          "a=1 c=y");
    check("a=1", "[]", "a=1");
    check("", "- {target_label: c, replacement: x}", "c=x");
}

static void actions_are_read_in_any_case(void **state)
{
    check("a=1", "- {source_labels: [a], action: Replace, target_label: b}", "a=1 b=1");
    check("a=1", "- {source_labels: [a], action: DROP, regex: '1'}", DROPPED);
    check("a=1", "- {action: LabelDrop, regex: a}", "");
}

static void missing_labels_are_empty(void **state)
{
    check("a=1", "- {source_labels: [x], regex: '', action: keep}", "a=1");
    check("a=1", "- {source_labels: [x], regex: .+, action: keep}", DROPPED);
    check("a=1", "- {source_labels: [x], action: keepequal, target_label: y}", "a=1");
    check("a=1", "- {source_labels: [x], action: dropequal, target_label: y}", DROPPED);
    check("a=1", "- {source_labels: [x], action: lowercase, target_label: a}", "");
    check("a=1", "- {source_labels: [x], action: hashmod, target_label: b, modulus: 1000}",
          "a=1 b=958");
    check("a=1", "- {action: keep}", "a=1");
    check("a=1", "- {action: drop}", DROPPED);
}

// Computed with Go's crypto/md5.
static void hashmod_spreads_as_prometheus_does(void **state)
{
    check("a=10.0.0.1:9400", "- {source_labels: [a], action: hashmod, target_label: b, modulus: 8}",
          "a=10.0.0.1:9400 b=3");
    check("a=10.0.0.1:9400", "- {source_labels: [a], action: hashmod, target_label: b, modulus: 3}",
          "a=10.0.0.1:9400 b=1");
    check("a=node-1 b=nvidia0",
          "- {source_labels: [a, b], action: hashmod, target_label: c, modulus: 1000}",
          "a=node-1 b=nvidia0 c=74");
    check("a=a b=b", "- {source_labels: [a, b], action: hashmod, target_label: c, modulus: 1}",
          "a=a b=b c=0");
    check("a=baz",
          "- {source_labels: [a], action: hashmod, target_label: b, modulus: 9223372036854775807}",
          "a=baz b=7227425850715500169");
    check("a=baz", "- {source_labels: [a], action: hashmod, target_label: b, modulus: 0x10}",
          "a=baz b=8");
}

static void labelmap_sees_the_names_before_it(void **state)
{
    check("a=1 aa=2", "- {action: labelmap, regex: (a+), replacement: a$1}", "a=1 aa=1 aaa=2");
    check("a=1", "- {action: labelmap}", "a=1");
    check("a=1 b=2", "- {action: labelmap, regex: (.*), replacement: same}", "a=1 b=2 same=2");
    check("a=1 b=2", "- {action: labelmap, regex: '[ab]', replacement: x$1}", "a=1 b=2 x=2");
    check("a=1", "- {action: labelmap, regex: a, replacement: $1}",
          "a=1"); // a name must not be empty
}

static void what_a_regex_drops_a_later_rule_sets_again(void **state)
{
    check("job=x __address__=h:1",
          "- {action: labelkeep, regex: __.*}\n- {source_labels: [__address__], target_label: job, "
          "regex: '(.*):.*'}",
          "__address__=h:1 job=h");
}

// The rules of the AWS post; its port rule lost the backslash, and therefore never takes a port
// off.
static void the_rules_of_the_post_do_what_they_say(void **state)
{
    static const char port[] = "- {source_labels: [__address__], action: replace, regex: "
                               "'([^:]+)(?::d+)?', replacement: '${1}:9400', "
                               "target_label: __address__}";
    check("__address__=10.0.0.9", port, "__address__=10.0.0.9:9400");
    check("__address__=10.0.0.9:80", port, "__address__=10.0.0.9:80");
    check("__address__=10.0.0.9:ddd", port, "__address__=10.0.0.9:9400");
    check("__meta_kubernetes_pod_container_name=DCGM",
          "- {source_labels: [__meta_kubernetes_pod_container_name], action: keep, regex: "
          "'^DCGM.*$'}\n"
          "- {action: labelmap, regex: __meta_kubernetes_pod_label_(.+)}",
          "__meta_kubernetes_pod_container_name=DCGM");
    check("__meta_kubernetes_pod_container_name=dcgm-exporter",
          "- {source_labels: [__meta_kubernetes_pod_container_name], action: keep, regex: "
          "'^DCGM.*$'}",
          DROPPED);
}

// --- Reading ---

static int parse(const char *yaml, struct error *err)
{
    struct yaml_document *d = NULL;
    struct relabel_rules *rules = NULL;
    assert_int_equal(yaml_parse(sv_from(yaml), "f", &d, err), 0);
    int r = relabel_parse(yaml_root(d), "f", &rules, err);
    assert_true(r < 0 || rules);
    relabel_free(rules);
    yaml_document_free(d);
    return r;
}

static void bad_rules_are_refused_where_they_stand(void **state)
{
    static const struct {
        const char *yaml, *message;
    } cases[] = {
        {"a: 1", "f:1:1: expected a list of rules, found a mapping"},
        {"- x", "f:1:3: expected a mapping, found 'x'"},
        {"- target_label: a\n-\n", "f:2:2: an empty rule"},
        {"- {}", "f:1:3: replace needs a target_label"},
        {"- {target_label: ''}", "f:1:18: replace needs a target_label"},
        {"- {target_label: }", "f:1:18: replace needs a target_label"},
        {"- {action: hashmod, target_label: a}", "f:1:3: hashmod needs a modulus above 0"},
        {"- {action: hashmod, target_label: a, modulus: 0}",
         "f:1:47: hashmod needs a modulus above 0"},
        {"- {action: hashmod, modulus: 1}", "f:1:3: hashmod needs a target_label"},
        {"- {action: hashmod, target_label: a, modulus: -1}",
         "f:1:47: modulus: expected a whole number, 0 or more, found '-1'"},
        {"- {action: hashmod, target_label: a, modulus: x}",
         "f:1:47: modulus: expected a whole number, 0 or more, found 'x'"},
        {"- {action: lowercase}", "f:1:3: lowercase needs a target_label"},
        {"- {action: uppercase}", "f:1:3: uppercase needs a target_label"},
        {"- {action: uppercase, target_label: a, replacement: b}",
         "f:1:53: replacement: uppercase takes none"},
        {"- {action: keepequal}", "f:1:3: keepequal needs a target_label"},
        {"- {action: dropequal}", "f:1:3: dropequal needs a target_label"},
        {"- {action: keepequal, target_label: a, regex: (.*)}",
         "f:1:47: regex: keepequal takes source_labels, a target_label and no other key"},
        {"- {action: keepequal, target_label: a, separator: ','}",
         "f:1:51: separator: keepequal takes source_labels, a target_label and no other key"},
        {"- {action: dropequal, target_label: a, modulus: 3}",
         "f:1:49: modulus: dropequal takes source_labels, a target_label and no other key"},
        {"- {action: dropequal, target_label: a, replacement: x}",
         "f:1:53: replacement: dropequal takes source_labels, a target_label and no other key"},
        {"- {action: labeldrop, source_labels: [a]}",
         "f:1:38: source_labels: labeldrop takes a regex and no other key"},
        {"- {action: labeldrop, source_labels: []}",
         "f:1:38: source_labels: labeldrop takes a regex and no other key"},
        {"- {action: labelkeep, target_label: a}",
         "f:1:37: target_label: labelkeep takes a regex and no other key"},
        {"- {action: labelkeep, replacement: a}",
         "f:1:36: replacement: labelkeep takes a regex and no other key"},
        {"- {action: labelmap, replacement: ''}", "f:1:35: replacement: '' can make no label name"},
        {"- {action: repalce}",
         "f:1:12: unknown relabel action 'repalce' (did you mean 'replace'?)"},
        {"- {action: zzzzzzzzz}", "f:1:12: unknown relabel action 'zzzzzzzzz'"},
        {"- {action: ''}", "f:1:12: unknown relabel action ''"},
        {"- {action: }", "f:1:12: action: expected an action, found nothing"},
        {"- {action: [keep]}", "f:1:12: action: expected an action, found a list"},
        {"- {target_label: a, regex: (}", "f:1:28: regular expression: missing ): ("},
        {"- {target_label: a, regex: '(?=x)'}",
         "f:1:28: regular expression: invalid perl operator: (?="},
        {"- {target_label: a, regex: [a]}",
         "f:1:28: regex: expected a regular expression, found a list"},
        {"- {target_label: a, source_labels: b}",
         "f:1:36: source_labels: expected a list, found 'b'"},
        {"- {target_label: a, source_labels: [b, [c]]}", "f:1:40: expected a text, found a list"},
        {"- {target_label: a, source_labels: [b, '']}", "f:1:40: '' is not a label name"},
        {"- {target_label: a, source_label: [b]}",
         "f:1:21: unknown key 'source_label' (did you mean 'source_labels'?)"},
        {"- {target_label: [a]}", "f:1:18: target_label: expected a text, found a list"},
        {"- {target_label: {a: b}}", "f:1:18: target_label: expected a text, found a mapping"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error err = ERROR_INIT;
        char text[1024];
        if (parse(cases[i].yaml, &err) != -EINVAL)
            fail_msg("accepted: %s", cases[i].yaml);
        assert_string_equal(error_text(&err, text, sizeof(text)), cases[i].message);
    }
}

static void keys_that_repeat_the_default_are_let_pass(void **state)
{
    static const char *const cases[] = {
        "- {action: keepequal, target_label: a, separator: ;, replacement: $1, modulus: 0}",
        ("- {action: labeldrop, regex: a, separator: ;, replacement: $1, target_label: '', "
         "source_labels: }"),
        "- {action: lowercase, target_label: a, replacement: $1, regex: x, separator: x}",
        "- {action: keep, target_label: a, replacement: x, modulus: 5}",
        "- {action: labelmap, target_label: a, source_labels: [x]}",
        "",
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error err = ERROR_INIT;
        if (*cases[i] && parse(cases[i], &err) < 0)
            fail_msg("%s: %s", cases[i], err.text);
    }
}

static void no_rules_change_nothing(void **state)
{
    struct relabel_rules *rules = NULL;
    assert_int_equal(relabel_parse(NULL, "f", &rules, NULL), 0);
    assert_int_equal(relabel_count(rules), 0);
    relabel_free(rules);
    assert_int_equal(relabel_count(NULL), 0);
    relabel_free(NULL);
    struct arena arena = ARENA_INIT(1u << 16);
    struct labels l;
    labels_init(&l, &arena);
    assert_int_equal(relabel_apply(NULL, &l), 0);
    arena_deinit(&arena);
}

static void a_reader_hears_of_every_problem(void **state)
{
    static const char yaml[] = "- {target: a, regx: b}\n"
                               "- {target_label: a}\n"
                               "- {action: hashmod}\n"
                               "- {regex: (, action: kep}\n";
    struct arena arena = ARENA_INIT(1u << 16);
    struct buf errors = BUF_INIT(10000);
    struct error first = ERROR_INIT;
    struct config_reader r = {.file = "f", .arena = &arena, .errors = &errors, .first = &first};
    struct yaml_document *d = NULL;
    assert_int_equal(yaml_parse(SV(yaml), "f", &d, NULL), 0);
    assert_null(relabel_read(&r, yaml_root(d), false));
    assert_int_equal(r.problems, 6);
    assert_string_equal(buf_cstr(&errors),
                        "f:1:4: unknown key 'target'\n"
                        "f:1:15: unknown key 'regx' (did you mean 'regex'?)\n"
                        "f:3:3: hashmod needs a target_label\n"
                        "f:3:3: hashmod needs a modulus above 0\n"
                        "f:4:11: regular expression: missing ): (\n"
                        "f:4:22: unknown relabel action 'kep' (did you mean 'keep'?)\n");
    assert_string_equal(first.text, "unknown key 'target'");
    yaml_document_free(d);
    buf_deinit(&errors);
    arena_deinit(&arena);
}

static void legacy_names_are_letters_digits_and_underscores(void **state)
{
    static const struct {
        const char *yaml;
        bool good;
    } cases[] = {
        {"- {target_label: abc_9}", true},
        {"- {target_label: 9abc}", false},
        {"- {target_label: a.b}", false},
        {"- {target_label: 'x_${1}_y$2'}", true},
        {"- {target_label: '${1}'}", true},
        {"- {target_label: '$'}", false},
        {"- {target_label: '${1'}", false},
        {"- {target_label: 'a-$1'}", false},
        {"- {action: lowercase, target_label: $1}", false},
        {"- {action: labelmap, replacement: a_$1}", true},
        {"- {action: labelmap, replacement: a.$1}", false},
        {"- {target_label: a, source_labels: [a.b]}", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct arena arena = ARENA_INIT(1u << 16);
        struct config_reader r = {.file = "f", .arena = &arena};
        struct yaml_document *d = NULL;
        assert_int_equal(yaml_parse(sv_from(cases[i].yaml), "f", &d, NULL), 0);
        struct relabel_rules *rules = relabel_read(&r, yaml_root(d), true);
        if (!!rules != cases[i].good)
            fail_msg("%s", cases[i].yaml);
        relabel_free(rules);
        yaml_document_free(d);
        arena_deinit(&arena);
    }
}

static void a_name_made_at_run_time_is_held_to_the_scheme(void **state)
{
    static const char yaml[] = "- {source_labels: [a], target_label: $1, replacement: x}\n"
                               "- {action: labelmap, regex: (.*), replacement: '${1}_copy'}";
    static const char *const expected[] = {"a=b.c a_copy=b.c b.c=x b.c_copy=x", "a=b.c a_copy=b.c"};
    for (int legacy = 0; legacy < 2; legacy++) {
        struct arena arena = ARENA_INIT(1u << 16);
        struct config_reader r = {.file = "f", .arena = &arena};
        struct yaml_document *d = NULL;
        struct labels l;
        struct buf out = BUF_INIT(1000);
        assert_int_equal(yaml_parse(SV(yaml), "f", &d, NULL), 0);
        struct relabel_rules *rules = relabel_read(&r, yaml_root(d), legacy);
        labels_init(&l, &arena);
        set_all(&l, "a=b.c");
        assert_int_equal(relabel_apply(rules, &l), 0);
        show(&l, &out);
        assert_string_equal(buf_cstr(&out), expected[legacy]);
        buf_deinit(&out);
        relabel_free(rules);
        yaml_document_free(d);
        arena_deinit(&arena);
    }
}

static void rules_may_share_keys_by_merging(void **state)
{
    check("a=1",
          "- &base {source_labels: [a], target_label: b}\n- {<<: *base, target_label: c}\n"
          "- {target_label: d, <<: [{target_label: x, replacement: 'r$1'}, *base]}",
          "a=1 b=1 c=1 d=r1");
}

static void the_number_of_rules_is_capped_exactly(void **state)
{
    for (unsigned count = LIMIT_RELABEL_RULES; count <= LIMIT_RELABEL_RULES + 1; count++) {
        struct buf b = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
        for (unsigned i = 0; i < count; i++)
            buf_add_str(&b, "- {target_label: a}\n");
        struct error err = ERROR_INIT;
        assert_int_equal(parse(buf_cstr(&b), &err), count > LIMIT_RELABEL_RULES ? -EINVAL : 0);
        if (count > LIMIT_RELABEL_RULES)
            assert_string_equal(err.text, "more than 1024 rules");
        buf_deinit(&b);
    }
}

static void rules_that_multiply_a_long_text_are_refused(void **state)
{
    struct buf b = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    buf_add_str(&b, "- {target_label: a, replacement: &x ");
    for (unsigned i = 0; i < 20000; i++)
        buf_add_char(&b, 'x');
    buf_add_str(&b, "}\n");
    for (unsigned i = 0; i < 1000; i++)
        buf_add_str(&b, "- {target_label: a, replacement: *x}\n");
    struct error err = ERROR_INIT;
    assert_int_equal(parse(buf_cstr(&b), &err), -EINVAL);
    assert_string_equal(err.text, "rules of more than 8388608 bytes");
    buf_deinit(&b);
}

static void labels_beyond_the_cap_end_the_relabelling(void **state)
{
    struct arena arena = ARENA_INIT(1u << 20);
    struct labels l;
    labels_init(&l, &arena);
    for (unsigned i = 0; i < LIMIT_LABELS; i++) {
        char name[32];
        int length = snprintf(name, sizeof(name), "label_%u", i);
        assert_int_equal(labels_set(&l, (struct sv){name, (size_t)length}, SV("x")), 0);
    }
    struct relabel_rules *rules = read_rules("- {target_label: one_more, replacement: x}");
    assert_int_equal(relabel_apply(rules, &l), -E2BIG);
    relabel_free(rules);
    arena_deinit(&arena);
}

static void a_full_arena_ends_the_relabelling(void **state)
{
    static const char *const cases[] = {
        "- {source_labels: [a, a, a, a], action: keep}",
        "- {source_labels: [a], target_label: b, replacement: $1$1$1$1}",
        "- {source_labels: [a], target_label: b, action: lowercase}",
        ("- {action: labelmap, regex: (a), replacement: "
         "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx$1}"),
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct arena arena = ARENA_INIT(4096);
        struct labels l;
        labels_init(&l, &arena);
        char value[3000];
        memset(value, 'v', sizeof(value));
        assert_int_equal(labels_set(&l, SV("a"), (struct sv){value, sizeof(value)}), 0);
        (void)arena_alloc(&arena, 500);
        struct relabel_rules *rules = read_rules(cases[i]);
        assert_int_equal(relabel_apply(rules, &l), -E2BIG);
        relabel_free(rules);
        arena_deinit(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_do_what_they_do_in_prometheus),
        cmocka_unit_test(defaults_copy_the_joined_values),
        cmocka_unit_test(actions_are_read_in_any_case),
        cmocka_unit_test(missing_labels_are_empty),
        cmocka_unit_test(hashmod_spreads_as_prometheus_does),
        cmocka_unit_test(labelmap_sees_the_names_before_it),
        cmocka_unit_test(what_a_regex_drops_a_later_rule_sets_again),
        cmocka_unit_test(the_rules_of_the_post_do_what_they_say),
        cmocka_unit_test(bad_rules_are_refused_where_they_stand),
        cmocka_unit_test(keys_that_repeat_the_default_are_let_pass),
        cmocka_unit_test(no_rules_change_nothing),
        cmocka_unit_test(a_reader_hears_of_every_problem),
        cmocka_unit_test(legacy_names_are_letters_digits_and_underscores),
        cmocka_unit_test(a_name_made_at_run_time_is_held_to_the_scheme),
        cmocka_unit_test(rules_may_share_keys_by_merging),
        cmocka_unit_test(the_number_of_rules_is_capped_exactly),
        cmocka_unit_test(rules_that_multiply_a_long_text_are_refused),
        cmocka_unit_test(labels_beyond_the_cap_end_the_relabelling),
        cmocka_unit_test(a_full_arena_ends_the_relabelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
