// SPDX-License-Identifier: Apache-2.0
// Names of log groups and streams. Source of the placeholders: the CloudWatch agent's EMF exporter,
// which also looks for OpenTelemetry's names of the same things.
#include "agent/sinks/emf_internal.h"
#include "base/limits.h"

static const struct placeholder {
    const char *name, *attribute;
} placeholders[] = {
    {"ClusterName", "aws.ecs.cluster.name"},
    {"ContainerInstanceId", "aws.ecs.container.instance.id"},
    {"JobName", "job"},
    {"NodeName", "k8s.node.name"},
    {"PodName", "pod"},
    {"ServiceName", "service.name"},
    {"TaskDefinitionFamily", "aws.ecs.task.family"},
    {"TaskId", "aws.ecs.task.id"},
};

static const struct placeholder *find(struct sv name)
{
    for (size_t i = 0; i < ARRAY_SIZE(placeholders); i++) {
        if (sv_equals(name, sv_from(placeholders[i].name)))
            return &placeholders[i];
    }
    return NULL;
}

// pattern starts with '{'; how much of it was taken.
static size_t expand_one(struct buf *out, struct sv pattern, const struct labels *l)
{
    size_t end = sv_find_char(pattern, '}');
    const struct placeholder *p = end == (size_t)-1 ? NULL : find(sv_sub(pattern, 1, end - 1));
    if (!p) {
        buf_add_char(out, '{');
        return 1;
    }
    struct sv value = labels_get(l, sv_from(p->name));
    if (!value.len)
        value = labels_get(l, sv_from(p->attribute));
    buf_add_sv(out, value.len ? value : SV("undefined"));
    return end + 1;
}

void emf_expand_name(struct buf *out, struct sv pattern, const struct labels *l)
{
    while (pattern.len) {
        size_t plain = sv_find_char(pattern, '{');
        plain = plain == (size_t)-1 ? pattern.len : plain;
        buf_add_sv(out, sv_sub(pattern, 0, plain));
        pattern = sv_sub(pattern, plain, pattern.len);
        if (pattern.len)
            pattern = sv_sub(pattern, expand_one(out, pattern, l), pattern.len);
    }
}

static bool is_group_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_/.#-", c));
}

void emf_mend_name(struct buf *name, size_t from, bool is_stream)
{
    if (name->error)
        return;
    struct sv s = sv_cut(sv_sub(buf_sv(name), from, name->len), LIMIT_EMF_NAME_BYTES);
    name->len = from + s.len;
    for (size_t i = from; i < name->len; i++) {
        char c = name->data[i];
        if (is_stream ? c == ':' || c == '*' : !is_group_character(c))
            name->data[i] = '-';
    }
}
