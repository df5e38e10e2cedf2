// SPDX-License-Identifier: Apache-2.0
// How it works: a path is cut at '/' and ':' into parts; the first part that ends in "pod" and a
// UID names the pod (the outermost one belongs to this host's kubelet), the first later part that
// is a container's its container. Nothing above the pod is looked at: kubelets put what they like
// there, and from inside a cgroup namespace it is not to be seen.
#include "kube/process_cgroup.h"

#include "base/num.h"

#define UUID_LENGTH 36
#define HASH_LENGTH 32
#define ID_LENGTH 64

// --- Parts of a path ---

static bool next_part(struct sv *path, struct sv *part)
{
    while (path->len > 0) {
        size_t end = 0;
        while (end < path->len && path->ptr[end] != '/' && path->ptr[end] != ':')
            end++;
        *part = sv_sub(*path, 0, end);
        *path = sv_sub(*path, end + 1, path->len);
        if (part->len > 0)
            return true;
    }
    return false;
}

static struct sv without_suffix(struct sv s, struct sv suffix)
{
    return sv_ends_with(s, suffix) ? sv_sub(s, 0, s.len - suffix.len) : s;
}

static char lower_hex(char c)
{
    return (char)(c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
}

static bool is_all_hex(struct sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if (num_hex_digit(s.ptr[i]) < 0)
            return false;
    return true;
}

// 8-4-4-4-12; systemd's slices are cut at '-', so there it is '_'.
static bool is_uuid(struct sv s)
{
    if (s.len != UUID_LENGTH)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? s.ptr[i] != '-' && s.ptr[i] != '_' : num_hex_digit(s.ptr[i]) < 0)
            return false;
    }
    return true;
}

// "pod" stands before the last `length` bytes, at the start or behind a '-'.
static bool ends_in_pod(struct sv s, size_t length, struct sv *uid)
{
    if (s.len < length + 3)
        return false;
    size_t pod = s.len - length - 3;
    if (!sv_equals(sv_sub(s, pod, 3), SV("pod")) || (pod > 0 && s.ptr[pod - 1] != '-'))
        return false;
    *uid = sv_sub(s, pod + 3, length);
    return true;
}

// The pod's UID, or the hash that a static pod has in its place.
static bool read_pod(struct sv part, char *out)
{
    struct sv name = without_suffix(part, SV(".slice")), uid;
    bool found = (ends_in_pod(name, UUID_LENGTH, &uid) && is_uuid(uid)) ||
                 (ends_in_pod(name, HASH_LENGTH, &uid) && is_all_hex(uid));
    if (!found)
        return false;
    for (size_t i = 0; i < uid.len; i++)
        out[i] = (char)(uid.ptr[i] == '_' ? '-' : lower_hex(uid.ptr[i]));
    out[uid.len] = '\0';
    return true;
}

// 64 hex digits, alone or behind what a runtime puts before them; conmon watches a container and is
// none.
static bool read_container(struct sv part, char *out)
{
    static const struct sv prefixes[] = {
        {"", 0}, {"cri-containerd-", 15}, {"crio-", 5}, {"docker-", 7}, {"libpod-", 7},
    };
    struct sv name = without_suffix(part, SV(".scope"));
    if (name.len < ID_LENGTH)
        return false;
    struct sv prefix = sv_sub(name, 0, name.len - ID_LENGTH);
    struct sv id = sv_sub(name, prefix.len, ID_LENGTH);
    bool known = false;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        known = known || sv_equals(prefix, prefixes[i]);
    if (!known || !is_all_hex(id))
        return false;
    for (size_t i = 0; i < id.len; i++)
        out[i] = lower_hex(id.ptr[i]);
    out[id.len] = '\0';
    return true;
}

// --- A path ---

static bool read_pod_path(struct sv path, struct process_cgroup *out)
{
    struct sv part;
    bool pod = false;
    while (next_part(&path, &part)) {
        if (!pod)
            pod = read_pod(part, out->pod_uid);
        else if (read_container(part, out->container_id))
            break;
    }
    return pod;
}

// From inside a container's cgroup namespace another container of the same pod is a sibling; the
// reader's root may lie one deeper, in the "container" that some versions of CRI-O make.
static bool read_sibling_path(struct sv path, struct process_cgroup *out)
{
    struct sv part;
    unsigned climbed = 0;
    while (next_part(&path, &part) && sv_equals(part, SV("..")))
        climbed++;
    if (climbed < 1 || climbed > 2 || !read_container(part, out->container_id))
        return false;
    out->own_pod = true;
    return true;
}

// --- The file ---

// Lower is better; one file can name several hierarchies, of which some may lead to the runtime's
// own service.
static unsigned rank_of(struct sv controllers)
{
    struct sv name;
    unsigned rank = 2;
    while (sv_next(&controllers, ',', &name)) {
        if (sv_equals(name, SV("memory")))
            return 0;
        if (sv_equals(name, SV("cpu")))
            rank = 1;
    }
    return rank;
}

// "id:controllers:path"; the path may hold colons.
static bool cut_line(struct sv line, struct sv *controllers, struct sv *path)
{
    size_t first = sv_find_char(line, ':');
    if (first == (size_t)-1)
        return false;
    struct sv rest = sv_sub(line, first + 1, line.len);
    size_t second = sv_find_char(rest, ':');
    if (second == (size_t)-1)
        return false;
    *controllers = sv_sub(rest, 0, second);
    // What the kernel adds when the group is gone and its last process is not.
    *path = without_suffix(sv_sub(rest, second + 1, rest.len), SV(" (deleted)"));
    return true;
}

bool process_cgroup_parse(struct sv file, struct process_cgroup *out)
{
    struct sv line, controllers, path;
    struct process_cgroup best = {{0}, {0}, false};
    unsigned best_rank = 3; // none yet
    *out = best;
    while (best_rank > 0 && sv_next(&file, '\n', &line)) {
        struct process_cgroup here = {{0}, {0}, false};
        if (!cut_line(line, &controllers, &path))
            continue;
        unsigned rank = rank_of(controllers);
        if (rank < best_rank && read_pod_path(path, &here)) {
            best = here;
            best_rank = rank;
        } else if (best_rank == 3 && !best.own_pod && read_sibling_path(path, &here)) {
            best = here;
        }
    }
    *out = best;
    return best_rank < 3 || best.own_pod;
}
