// SPDX-License-Identifier: Apache-2.0
// RE2 with its memory capped. Patterns that are one literal, and "match everything", need no
// engine: they are most of those in use ("^DCGM_FI_DEV_GPU_UTIL$", "(.*)").
#include <errno.h>

#include <re2/re2.h>

#include <new>
#include <string>

// Behind the library's headers: the names of our attributes are words of C++.
#include "base/limits.h"
#include "codec/regex.h"
extern "C" {
#include "base/error.h"
}

enum class shortcut {
    none,
    literal,            // the text is exactly that
    everything,         // .*
    everything_grouped, // (.*)
};

// Of a compiled instruction, with its share of the tree and of the program that runs backwards.
constexpr size_t INSTRUCTION_BYTES = 16;

struct regex {
    regex(const std::string &pattern, const RE2::Options &options) : program(pattern, options)
    {
    }
    RE2 program;
    shortcut kind = shortcut::none;
    std::string text; // shortcut::literal
};

namespace
{

RE2::Options options()
{
    RE2::Options o;
    o.set_log_errors(false);
    o.set_max_mem(LIMIT_REGEX_PROGRAM_BYTES);
    return o;
}

bool is_literal_byte(char c)
{
    return c != '\0' && !strchr("\\^$.|?*+()[]{}", c);
}

bool is_literal(struct sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!is_literal_byte(s.ptr[i]))
            return false;
    }
    return true;
}

// The literal the whole text has to equal, if the pattern says no more than that. Case folding and
// such need brackets.
bool find_literal(struct sv pattern, enum regex_anchor anchor, struct sv *out)
{
    bool begins = pattern.len && pattern.ptr[0] == '^';
    bool ends = pattern.len > (begins ? 1u : 0u) && pattern.ptr[pattern.len - 1] == '$';
    if (anchor == REGEX_SEARCH && !(begins && ends))
        return false;
    *out = {pattern.ptr + begins, pattern.len - begins - ends};
    return is_literal(*out);
}

void find_shortcut(regex *r, struct sv pattern, enum regex_anchor anchor)
{
    struct sv literal;
    if (anchor == REGEX_FULL && sv_equals(pattern, sv_from(".*"))) {
        r->kind = shortcut::everything;
    } else if (anchor == REGEX_FULL && sv_equals(pattern, sv_from("(.*)"))) {
        r->kind = shortcut::everything_grouped;
    } else if (find_literal(pattern, anchor, &literal)) {
        r->kind = shortcut::literal;
        r->text.assign(literal.ptr, literal.len);
    }
}

// From the [ of a character class to behind its ].
size_t skip_class(struct sv p, size_t i)
{
    i++;
    i += i < p.len && p.ptr[i] == '^';
    i += i < p.len && p.ptr[i] == ']'; // the first one stands for itself
    while (i < p.len && p.ptr[i] != ']') {
        bool named = p.ptr[i] == '[' && i + 1 < p.len && p.ptr[i + 1] == ':';
        size_t close =
            named ? sv_find(sv_sub(p, i + 2, p.len), sv_from(":]")) : static_cast<size_t>(-1);
        if (close != static_cast<size_t>(-1))
            i += close + 4;
        else
            i += p.ptr[i] == '\\' ? 2 : 1;
    }
    return i < p.len ? i + 1 : p.len;
}

// From a backslash to behind what it takes: \Q takes all up to \E.
size_t skip_escape(struct sv p, size_t i)
{
    if (i + 1 >= p.len)
        return p.len;
    if (p.ptr[i + 1] != 'Q')
        return i + 2;
    size_t end = sv_find(sv_sub(p, i + 2, p.len), sv_from("\\E"));
    return end == static_cast<size_t>(-1) ? p.len : i + 2 + end + 2;
}

bool opens_named_group(struct sv p, size_t i)
{
    struct sv rest = sv_sub(p, i, p.len);
    return sv_starts_with(rest, sv_from("(?<")) && rest.len > 3 && rest.ptr[3] != '=' &&
           rest.ptr[3] != '!';
}

// Go's syntax to RE2's. false: it has \C, which Go does not know.
bool translate(struct sv p, std::string *out)
{
    for (size_t i = 0; i < p.len;) {
        size_t next = i + 1;
        if (p.ptr[i] == '\\') {
            if (next < p.len && p.ptr[next] == 'C')
                return false;
            next = skip_escape(p, i);
        } else if (p.ptr[i] == '[') {
            next = skip_class(p, i);
        } else if (opens_named_group(p, i)) {
            out->append("(?P<");
            i += 3;
            continue;
        }
        if (next > p.len)
            next = p.len;
        out->append(p.ptr + i, next - i);
        i = next;
    }
    return true;
}

// What is wrong, said of the pattern as it was given where that alone shows it.
int refuse(const RE2 &program, const std::string &pattern, struct error *err)
{
    if (program.error_code() == RE2::ErrorPatternTooLarge)
        return error_set(err, -E2BIG, "the regular expression is too large");
    RE2 alone(pattern, options());
    const RE2 &wrong = alone.ok() ? program : alone;
    return error_set(err, -EINVAL, "regular expression: %.200s", wrong.error().c_str());
}

re2::StringPiece piece(struct sv s)
{
    return re2::StringPiece(s.ptr ? s.ptr : "", s.len);
}

bool match_shortcut(const struct regex *r, struct sv text, struct sv *spans, size_t count)
{
    if (r->kind == shortcut::literal && !sv_equals(text, {r->text.data(), r->text.size()}))
        return false;
    for (size_t i = 0; i < count; i++)
        spans[i] = {nullptr, 0};
    struct sv whole = {text.ptr ? text.ptr : "", text.len};
    if (count)
        spans[0] = whole;
    if (count > 1 && r->kind == shortcut::everything_grouped)
        spans[1] = whole;
    return true;
}

} // namespace

int regex_new(struct sv pattern, enum regex_anchor anchor, struct regex **out, struct error *err)
{
    if (pattern.len > LIMIT_REGEX_BYTES)
        return error_set(err, -E2BIG, "the regular expression is larger than %u bytes",
                         LIMIT_REGEX_BYTES);
    std::string alone;
    if (!translate(pattern, &alone))
        return error_set(err, -EINVAL, "regular expression: invalid escape sequence: \\C");
    std::string whole = anchor == REGEX_FULL ? "^(?s:" + alone + ")$" : alone;
    auto *r = new (std::nothrow) struct regex(whole, options());
    if (!r)
        return error_set(err, -ENOMEM, "out of memory");
    if (!r->program.ok()) {
        int result = refuse(r->program, alone, err);
        delete r;
        return result;
    }
    find_shortcut(r, pattern, anchor);
    *out = r;
    return 0;
}

int regex_new_within(struct regex_budget *budget, struct sv pattern, enum regex_anchor anchor,
                     struct regex **out, struct error *err)
{
    struct regex *r = nullptr;
    if (budget->used_bytes > LIMIT_REGEXES_BYTES)
        return error_set(err, -E2BIG,
                         "all regular expressions together are larger than %u bytes when compiled",
                         LIMIT_REGEXES_BYTES);
    int result = regex_new(pattern, anchor, &r, err);
    if (result == -E2BIG)
        budget->used_bytes += LIMIT_REGEX_PROGRAM_BYTES;
    if (result < 0)
        return result;
    budget->used_bytes += static_cast<size_t>(r->program.ProgramSize()) * INSTRUCTION_BYTES;
    *out = r;
    return 0;
}

void regex_free(struct regex *r)
{
    delete r;
}

bool regex_matches(const struct regex *r, struct sv text)
{
    if (r->kind != shortcut::none)
        return match_shortcut(r, text, nullptr, 0);
    return r->program.Match(piece(text), 0, text.len, RE2::UNANCHORED, nullptr, 0);
}

bool regex_match(const struct regex *r, struct sv text, struct sv *spans, size_t span_count)
{
    if (r->kind != shortcut::none)
        return match_shortcut(r, text, spans, span_count);
    re2::StringPiece groups[REGEX_GROUPS_MAX];
    int count = static_cast<int>(span_count < REGEX_GROUPS_MAX ? span_count : REGEX_GROUPS_MAX);
    if (!r->program.Match(piece(text), 0, text.len, RE2::UNANCHORED, groups, count))
        return false;
    for (int i = 0; i < count; i++)
        spans[i] = {groups[i].data(), groups[i].size()};
    return true;
}

unsigned regex_group_count(const struct regex *r)
{
    return static_cast<unsigned>(r->program.NumberOfCapturingGroups());
}

int regex_group_index(const struct regex *r, struct sv name)
{
    return regex_next_group(r, name, 0);
}

int regex_next_group(const struct regex *r, struct sv name, int before)
{
    const auto &names = r->program.CapturingGroupNames();
    for (auto group = names.upper_bound(before); group != names.end(); ++group) {
        if (sv_equals(name, {group->second.data(), group->second.size()}))
            return group->first;
    }
    return -1;
}
