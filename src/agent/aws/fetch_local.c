// SPDX-License-Identifier: Apache-2.0
// Providers that only look at this machine: the environment and the shared files.
#include "agent/aws/fetch.h"

#include <errno.h>

#include "agent/aws/env.h"
#include "base/file.h"

#define PATH_BYTES_MAX 4096
#define NAME_BYTES_MAX 256

static struct sv env_either(const struct aws_env *env, const char *name, const char *old_name)
{
    const char *value = aws_env_get(env, name);
    return sv_from(value ? value : aws_env_get(env, old_name));
}

int aws_fetch_environment(struct aws_fetch *f)
{
    struct sv access = env_either(f->env, "AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY");
    struct sv secret = env_either(f->env, "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY");
    if (access.len == 0 && secret.len == 0)
        return error_set(&f->err, -ENOENT, "AWS_ACCESS_KEY_ID is not set");
    if (secret.len == 0)
        return error_set(&f->err, -ENOENT, "AWS_ACCESS_KEY_ID without AWS_SECRET_ACCESS_KEY");
    if (access.len == 0)
        return error_set(&f->err, -ENOENT, "AWS_SECRET_ACCESS_KEY without AWS_ACCESS_KEY_ID");
    struct error err = ERROR_INIT;
    int r = aws_key_set_init(&f->keys, access, secret,
                             sv_from(aws_env_get(f->env, "AWS_SESSION_TOKEN")), &err);
    return r < 0 ? error_set(&f->err, r, "environment: %s", err.text) : 0;
}

// --- Shared files ---

// A path of a variable, or of the home directory; empty when there is none.
static void find_path(const struct aws_env *env, const char *variable, const char *usual,
                      struct buf *out)
{
    const char *home = aws_env_get(env, "HOME");
    struct sv path = sv_from(aws_env_get(env, variable));
    if (path.len == 0)
        path = sv_from(usual);
    if (sv_starts_with(path, SV("~/"))) {
        if (!home)
            return;
        buf_add_str(out, home);
        path = sv_sub(path, 1, path.len);
    }
    buf_add_sv(out, path);
}

static int load(const char *path, struct buf *text, struct ini *out, struct error *err)
{
    struct error why = ERROR_INIT;
    if (!*path)
        return 0;
    if (buf_reserve(text, file_stamp(path).there ? text->max : 0) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    int r = file_read(path, text, &why);
    if (r == -ENOENT || r == -ENOTDIR)
        return 0;
    return r < 0 ? error_set(err, r, "%s", why.text) : ini_parse(buf_sv(text), path, out, err);
}

int aws_profile_files_load(struct aws_profile_files *f, const struct aws_env *env,
                           struct error *err)
{
    *f = (struct aws_profile_files){
        .credentials_text = BUF_INIT(LIMIT_AWS_FILE_BYTES),
        .config_text = BUF_INIT(LIMIT_AWS_FILE_BYTES),
        .credentials_path = BUF_INIT(PATH_BYTES_MAX),
        .config_path = BUF_INIT(PATH_BYTES_MAX),
        .name = BUF_INIT(NAME_BYTES_MAX),
    };
    const char *named = aws_env_get(env, "AWS_PROFILE");
    if (!named)
        named = aws_env_get(env, "AWS_DEFAULT_PROFILE");
    f->is_named = named != NULL;
    buf_add_str(&f->name, named ? named : "default");
    find_path(env, "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", &f->credentials_path);
    find_path(env, "AWS_CONFIG_FILE", "~/.aws/config", &f->config_path);
    f->profiles.credentials_file = buf_cstr(&f->credentials_path);
    f->profiles.config_file = buf_cstr(&f->config_path);
    int failure = f->name.error ? f->name.error : f->credentials_path.error;
    if (failure || f->config_path.error)
        return error_set(err, failure ? failure : f->config_path.error,
                         "AWS_PROFILE or the path of a shared file is too long");
    int r = load(f->profiles.credentials_file, &f->credentials_text, &f->profiles.credentials, err);
    if (r == 0)
        r = load(f->profiles.config_file, &f->config_text, &f->profiles.config, err);
    return r;
}

void aws_profile_files_deinit(struct aws_profile_files *f)
{
    ini_deinit(&f->profiles.credentials);
    ini_deinit(&f->profiles.config);
    aws_erase_buf(&f->credentials_text);
    aws_erase_buf(&f->config_text);
    buf_deinit(&f->credentials_path);
    buf_deinit(&f->config_path);
    buf_deinit(&f->name);
}

static int plan_failed(struct aws_fetch *f, int code, const char *what)
{
    const struct aws_profiles *p = &f->files.profiles;
    return error_set(&f->err, code, "profile '%s' %s (%s, %s)", buf_cstr(&f->files.name), what,
                     *p->credentials_file ? p->credentials_file : "no HOME",
                     *p->config_file ? p->config_file : "no HOME");
}

// Goes to the provider that the profile names; that it isn't configured is then a failure.
static int start_source(struct aws_fetch *f)
{
    switch (f->plan.source) {
    case AWS_SOURCE_NONE:
        return plan_failed(f, -ENOENT, "has no keys");
    case AWS_SOURCE_KEYS:
        return aws_key_set_init(&f->keys, f->plan.access_key, f->plan.secret_key,
                                f->plan.session_token, &f->err);
    case AWS_SOURCE_WEB_IDENTITY:
        f->role = f->plan.web_role;
        f->token_file = f->plan.token_file;
        return aws_fetch_role(f);
    case AWS_SOURCE_ENVIRONMENT:
        f->is_bound = true;
        return aws_fetch_environment(f);
    case AWS_SOURCE_CONTAINER:
        f->is_bound = true;
        return aws_fetch_container(f);
    case AWS_SOURCE_IMDS:
        f->is_bound = true;
        return aws_fetch_imds(f);
    }
    return -EINVAL;
}

int aws_fetch_profile(struct aws_fetch *f)
{
    int r = aws_profile_files_load(&f->files, f->env, &f->err);
    if (r < 0)
        return r == -ENOENT ? -EIO : r;
    struct sv name = buf_sv(&f->files.name);
    if (!aws_profile_exists(&f->files.profiles, name))
        return plan_failed(f, f->files.is_named ? -EINVAL : -ENOENT, "is in neither file");
    r = aws_profile_plan(&f->files.profiles, name, &f->plan, &f->err);
    if (r < 0)
        return r;
    f->roles_left = f->plan.role_count;
    return start_source(f);
}
