// SPDX-License-Identifier: Apache-2.0
// The shared files: lines, and where a profile says its keys come from.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/aws/ini.h"
#include "agent/aws/profile.h"
#include "base/buf.h"

// "[s] k=v | k=v"
static void show(const struct ini *ini, struct buf *out)
{
    for (size_t i = 0; i < ini->count; i++) {
        const struct ini_line *l = &ini->lines[i];
        buf_add_str(out, i ? " | " : "");
        if (l->key.len == 0)
            buf_add_fmt(out, "%u[%.*s]", l->line, SV_FMT(l->section));
        else
            buf_add_fmt(out, "%.*s=%.*s", SV_FMT(l->key), SV_FMT(l->value));
    }
}

static void lines_are_read(void **state)
{
    static const struct {
        const char *text, *lines;
    } cases[] = {
        {"", ""},
        {"\n \n# c\n; c\n  # c\n", ""},
        {"[a]", "1[a]"},
        {"[a]\nk = v\n", "1[a] | k=v"},
        {"[a]\nk=v", "1[a] | k=v"},
        {"[ a b ]\r\nk =\tv \r\n", "1[a b] | k=v"},
        {"[a] # c\nk = v # c\n", "1[a] | k=v"},
        {"[a] ; c\nk = v ; c", "1[a] | k=v"},
        {"[a]\nk = v#c;d", "1[a] | k=v#c;d"},
        {"[a]\nk = a=b:c", "1[a] | k=a=b:c"},
        {"[a]\nk: v", "1[a] | k=v"},
        {"[a]\nk =", "1[a] | k="},
        {"[a]\ns3 =\n  x = 1\n  y = 2\nk = v", "1[a] | s3= | k=v"},
        {"[a]\n  k = v\n  l = w\n    m = x\n  n = y", "1[a] | k=v | l=w | n=y"},
        {"[a]\nk = v\n\n  # c\n[b]\n  l = w", "1[a] | k=v | 5[b] | l=w"},
        {"\xef\xbb\xbf[a]\nk = \xc3\xbc", "1[a] | k=\xc3\xbc"},
        {"[]\nk=v", "1[] | k=v"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct ini ini;
        struct error err = ERROR_INIT;
        struct buf out = BUF_INIT(4096);
        assert_int_equal(ini_parse(sv_from(cases[i].text), "f", &ini, &err), 0);
        show(&ini, &out);
        assert_string_equal(buf_cstr(&out), cases[i].lines);
        buf_deinit(&out);
        ini_deinit(&ini);
    }
    (void)state;
}

static void bad_lines_are_named_and_never_shown(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"k = v", "f:1:1: expected a [section] before the first setting"},
        {"[a]\nsecret", "f:2:1: expected 'key = value', a [section] or a comment"},
        {"[a]\n  secret", "f:2:3: expected 'key = value', a [section] or a comment"},
        {"[a]\n= secret", "f:2:1: expected a key before '='"},
        {"\n[a", "f:2:1: expected ']' at the end of a section's name"},
        {"[a] b", "f:1:4: expected the end of the line behind ']'"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct ini ini;
        struct error err = ERROR_INIT;
        char text[800];
        assert_int_equal(ini_parse(sv_from(cases[i].text), "f", &ini, &err), -EINVAL);
        assert_string_equal(error_text(&err, text, sizeof(text)), cases[i].says);
    }
    struct ini ini;
    assert_int_equal(ini_parse(SV("[a]\nk = \0v"), "f", &ini, NULL), -EINVAL);
    (void)state;
}

static int parse_settings(unsigned count)
{
    struct buf text = BUF_INIT(1u << 20);
    buf_add_str(&text, "[a]\n");
    for (unsigned i = 1; i < count; i++)
        buf_add_str(&text, "k=v\n");
    struct ini ini = {0};
    int r = ini_parse(buf_sv(&text), "f", &ini, NULL);
    if (r == 0)
        assert_int_equal(ini.count, count);
    ini_deinit(&ini);
    buf_deinit(&text);
    return r;
}

static void the_number_of_settings_is_capped(void **state)
{
    assert_int_equal(parse_settings(LIMIT_AWS_FILE_LINES - 1), 0);
    assert_int_equal(parse_settings(LIMIT_AWS_FILE_LINES), 0);
    assert_int_equal(parse_settings(LIMIT_AWS_FILE_LINES + 1), -EFBIG);
    (void)state;
}

// --- Profiles ---

static void read_files(const char *credentials, const char *config, struct aws_profiles *out)
{
    *out = (struct aws_profiles){.credentials_file = "credentials", .config_file = "config"};
    assert_int_equal(ini_parse(sv_from(credentials), "credentials", &out->credentials, NULL), 0);
    assert_int_equal(ini_parse(sv_from(config), "config", &out->config, NULL), 0);
}

static void free_files(struct aws_profiles *p)
{
    ini_deinit(&p->credentials);
    ini_deinit(&p->config);
}

static void settings_are_found(void **state)
{
    struct aws_profiles p;
    read_files("[default]\nk = 1\nk = 2\nempty =\n[x y]\nK2 = xy\n[default]\nlate = 3\n",
               "[default]\nk = no\nonly = here\nempty = filled\n[profile x y]\na = b\n"
               "[profile \"q q\"]\nc = d\n[profile\tt]\ne = f\n[plain]\ng = h\n[profiles]\ni = j\n"
               "[profile default]\ndef = yes\n",
               &p);
    static const struct {
        const char *profile, *key, *value;
    } cases[] = {
        {"default", "k", "2"},
        {"default", "K", "2"},
        {"default", "late", "3"},
        {"default", "only", "here"},
        {"x y", "k2", "xy"},
        {"x y", "a", "b"},
        {"q q", "c", "d"},
        {"t", "e", "f"},
        {"plain", "g", ""},
        {"s", "i", ""},
        {"profiles", "i", ""},
        {"default", "def", "yes"},
        {"gone", "k", ""},
        {"default", "zz", ""},
        {"default", "empty", "filled"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sv value = aws_profile_get(&p, sv_from(cases[i].profile), cases[i].key);
        assert_true(sv_equals(value, sv_from(cases[i].value)));
    }
    assert_true(aws_profile_exists(&p, SV("q q")));
    assert_false(aws_profile_exists(&p, SV("plain")));
    assert_false(aws_profile_exists(&p, SV("")));
    free_files(&p);
    (void)state;
}

static const char credentials[] = "[keys]\naws_access_key_id = AK\naws_secret_access_key = sk\n"
                                  "[token]\naws_access_key_id = AK2\naws_secret_access_key = sk2\n"
                                  "aws_session_token = t2\n[half]\naws_access_key_id = AK3\n"
                                  "[other]\naws_secret_access_key = s\n[none]\nregion = x\n";
static const char config[] =
    "[profile one]\nrole_arn = r1\nsource_profile = keys\nexternal_id = e\nrole_session_name = n\n"
    "duration_seconds = 900\n"
    "[profile two]\nrole_arn = r2\nsource_profile = one\n"
    "[profile web]\nrole_arn = rw\nweb_identity_token_file = /t\n"
    "[profile webtop]\nrole_arn = rt\nsource_profile = web\n"
    "[profile env]\nrole_arn = re\ncredential_source = Environment\n"
    "[profile ecs]\nrole_arn = rc\ncredential_source = EcsContainer\n"
    "[profile ec2]\nrole_arn = ri\ncredential_source = ec2InstanceMetadata\n"
    "[profile bad]\nrole_arn = rb\ncredential_source = Nowhere\n"
    "[profile both]\nrole_arn = rb\ncredential_source = Environment\nsource_profile = keys\n"
    "[profile sole]\nrole_arn = rs\n"
    "[profile self]\nrole_arn = rs\nsource_profile = self\naws_access_key_id = A\n"
    "aws_secret_access_key = S\n"
    "[profile selfless]\nrole_arn = rs\nsource_profile = selfless\n"
    "[profile loop1]\nrole_arn = r\nsource_profile = loop2\n"
    "[profile loop2]\nrole_arn = r\nsource_profile = loop3\n"
    "[profile loop3]\nrole_arn = r\nsource_profile = loop2\n"
    "[profile lost]\nrole_arn = r\nsource_profile = nobody\n"
    "[profile empty]\nrole_arn = r\nsource_profile = none\n"
    "[profile mfa]\nrole_arn = r\nsource_profile = keys\nmfa_serial = m\n"
    "[profile long]\nrole_arn = r\nsource_profile = keys\nduration_seconds = 899\n"
    "[profile process]\ncredential_process = /bin/true\n"
    "[profile sso]\nsso_start_url = https://x\n"
    "[profile d1]\nrole_arn = 1\nsource_profile = d2\n[profile d2]\nrole_arn = 2\nsource_profile = "
    "d3\n"
    "[profile d3]\nrole_arn = 3\nsource_profile = d4\n[profile d4]\nrole_arn = 4\n"
    "source_profile = d5\n[profile d5]\nrole_arn = 5\nsource_profile = keys\n"
    "[profile d0]\nrole_arn = 0\nsource_profile = d1\n";

// "source profile roles", or what is wrong.
static void show_plan(const struct aws_profiles *p, const char *name, struct buf *out)
{
    static const char *const sources[] = {"none", "keys", "web", "env", "ecs", "ec2"};
    struct aws_plan plan;
    struct error err = ERROR_INIT;
    if (aws_profile_plan(p, sv_from(name), &plan, &err) < 0) {
        buf_add_str(out, err.text);
        return;
    }
    buf_add_fmt(out, "%s %.*s %.*s%.*s%.*s%.*s", sources[plan.source], SV_FMT(plan.profile),
                SV_FMT(plan.access_key), SV_FMT(plan.secret_key), SV_FMT(plan.session_token),
                SV_FMT(plan.token_file));
    if (plan.web_role.arn.len > 0)
        buf_add_fmt(out, " %.*s", SV_FMT(plan.web_role.arn));
    for (size_t i = plan.role_count; i-- > 0;) {
        const struct aws_role *r = &plan.roles[i];
        buf_add_fmt(out, " >%.*s:%.*s:%.*s:%u", SV_FMT(r->arn), SV_FMT(r->external_id),
                    SV_FMT(r->session_name), (unsigned)r->duration_s);
    }
}

static void profiles_become_plans(void **state)
{
    static const struct {
        const char *name, *plan;
    } cases[] = {
        {"keys", "keys keys AKsk"},
        {"token", "keys token AK2sk2t2"},
        {"none", "none none "},
        {"half", "profile 'half': aws_access_key_id without aws_secret_access_key"},
        {"other", "profile 'other': aws_secret_access_key without aws_access_key_id"},
        {"one", "keys keys AKsk >r1:e:n:900"},
        {"two", "keys keys AKsk >r1:e:n:900 >r2:::0"},
        {"web", "web web /t rw"},
        {"webtop", "web web /t rw >rt:::0"},
        {"env", "env env  >re:::0"},
        {"ecs", "ecs ecs  >rc:::0"},
        {"ec2", "ec2 ec2  >ri:::0"},
        {"bad", "profile 'bad': credential_source is none of Environment, EcsContainer, "
                "Ec2InstanceMetadata"},
        {"both", "profile 'both': both source_profile and credential_source"},
        {"sole", "profile 'sole': role_arn without source_profile or credential_source"},
        {"self", "keys self AS >rs:::0"},
        {"selfless", "profile 'selfless': role_arn without source_profile or credential_source"},
        {"loop1", "profile 'loop3': source_profile leads back to a profile before it"},
        {"lost", "profile 'lost': source_profile is in neither file"},
        {"empty", "profile 'none': is a source_profile but has no credentials"},
        {"mfa", "profile 'mfa': mfa_serial needs a person, which is not supported"},
        {"long", "profile 'long': duration_seconds is not a number from 900 to 43200"},
        {"process", "profile 'process': credential_process is not supported"},
        {"sso", "profile 'sso': single sign-on (sso_*) is not supported"},
        {"d1", "keys keys AKsk >5:::0 >4:::0 >3:::0 >2:::0 >1:::0"},
        {"d0", "profile 'd5': too many roles on one another"},
    };
    struct aws_profiles p;
    read_files(credentials, config, &p);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf out = BUF_INIT(1024);
        show_plan(&p, cases[i].name, &out);
        assert_string_equal(buf_cstr(&out), cases[i].plan);
        buf_deinit(&out);
    }
    free_files(&p);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_read),
        cmocka_unit_test(bad_lines_are_named_and_never_shown),
        cmocka_unit_test(the_number_of_settings_is_capped),
        cmocka_unit_test(settings_are_found),
        cmocka_unit_test(profiles_become_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
