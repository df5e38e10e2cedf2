// SPDX-License-Identifier: Apache-2.0
// A page of a node made up from the input: whatever devices, values, texts, XID errors and holders
// there are, a page is UTF-8, each line is well formed, no label stands twice in a line and no
// series twice on the page; in both formats. Bytes 0 and 1 choose options, then each byte is a step
// with its arguments behind it (see play).
#include <stdlib.h>

#include "page_check.h"
#include "render_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ENTITIES_MAX 12
#define TEXTS_MAX 64
#define TEXT_MAX 40

static const uint16_t fields[] = {1, 53, 100, 150, 155, 230, 252, 1001};

struct input {
    const uint8_t *at, *end;
    char texts[TEXTS_MAX][TEXT_MAX + 1];
    size_t text_count;
};

static uint8_t take(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

// A text of the input: a length, then bytes up to the first NUL. Lives as long as the input.
static const char *take_text(struct input *in)
{
    size_t length = take(in) % (TEXT_MAX + 1);
    if (in->text_count == TEXTS_MAX)
        return "";
    char *text = in->texts[in->text_count++];
    for (size_t i = 0; i < length; i++)
        text[i] = (char)take(in);
    text[length] = '\0';
    return text;
}

// --- Steps ---

static void add_entity(struct fixture *f, struct input *in)
{
    uint8_t what = take(in), where = take(in);
    if (f->entity_count == ENTITIES_MAX)
        return;
    uint32_t e;
    uint32_t gpu = f->entity_count > 0 ? f->entities[where % f->entity_count].parent : 0;
    if (f->entity_count == 0 || what & 1)
        e = fixture_add_gpu(f, take_text(in));
    else
        e = fixture_add_instance(f, gpu, (what >> 4) & 3, take_text(in));
    struct frame_entity *entity = &f->entities[e];
    if (what & 2)
        entity->index = where & 3;
    if (what & 4)
        sv_copy(entity->uuid, sizeof(entity->uuid), sv_from(take_text(in)));
    if (what & 8)
        entity->state = (uint8_t)(where % FRAME_ENTITY_STATE_END);
}

static void set_value(struct fixture *f, struct input *in)
{
    uint32_t entity = take(in) % (f->entity_count + 1);
    uint16_t field = fields[take(in) % ARRAY_SIZE(fields)];
    uint8_t status = take(in), type = take(in);
    union {
        uint8_t bytes[8];
        int64_t i64;
        double f64;
    } v;
    for (size_t i = 0; i < sizeof(v.bytes); i++)
        v.bytes[i] = take(in);
    const char *text = type % FRAME_VALUE_TYPE_END == FRAME_VALUE_STRING ? take_text(in) : NULL;
    enum frame_status s = status & 0x80 ? (enum frame_status)(status % FRAME_STATUS_END) : FRAME_OK;
    fixture_record(f, entity, field, s, (enum frame_value_type)(type % FRAME_VALUE_TYPE_END), v.i64,
                   v.f64, text);
}

static void hold(struct fixture *f, struct input *in)
{
    uint8_t entity = take(in);
    const char *ns = take_text(in), *pod = take_text(in), *container = take_text(in),
               *vgpu = take_text(in);
    if (f->entity_count > 0 && f->holding_count < 20)
        fixture_hold(f, entity % f->entity_count, ns, pod, container, entity & 0x80 ? vgpu : NULL);
}

static void show(struct fixture *f)
{
    // The holders were worked out for the devices announced so far; the owners of any others are
    // unknown.
    if (f->holders.device_count > f->inventory.entity_count)
        f->holders.device_count = f->inventory.entity_count;
    for (int format = 0; format < TEXT_FORMAT_COUNT; format++)
        page_check(fixture_page(f, (enum text_format)format), (enum text_format)format);
}

static void play(struct fixture *f, struct input *in)
{
    while (in->at < in->end) {
        uint8_t step = take(in);
        switch (step % 8) {
        case 0:
            add_entity(f, in);
            break;
        case 1:
            fixture_list(f);
            break;
        case 2:
        case 3:
            set_value(f, in);
            break;
        case 4:
            if (f->entity_count > 0)
                fixture_xid(f, step / 8 % f->entity_count, take(in) & 3, take(in), FIXTURE_WALL_NS);
            break;
        case 5:
            hold(f, in);
            break;
        case 6:
            fixture_ready(f, step & 8);
            break;
        case 7:
            f->now_ns += (step / 8) * NS_PER_S;
            show(f);
            break;
        }
    }
    show(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const selections[] = {"f", "g", "i", "g+i", "g:0,2", "i:1"};
    static struct input in;
    in = (struct input){.at = data, .end = data + size};
    uint8_t flags = take(&in), choice = take(&in);
    struct fixture *f =
        fixture_new("DCGM_FI_DRIVER_VERSION, label, d\nDCGM_FI_DEV_SERIAL, gauge, s\n"
                    "DCGM_FI_DEV_SM_CLOCK, label, c\nDCGM_FI_DEV_GPU_TEMP, gauge, t\n"
                    "DCGM_FI_DEV_POWER_USAGE, counter, p\nDCGM_FI_DEV_XID_ERRORS, gauge, x\n"
                    "DCGM_FI_DEV_FB_USED, gauge, u\nDCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, a\n",
                    selections[choice % ARRAY_SIZE(selections)]);
    f->options.mig_board_once = flags & 1;
    f->options.flags.virtual_gpus = flags & 2;
    f->options.flags.use_old_namespace = flags & 4;
    f->options.flags.empty_owner_labels = flags & 8;
    f->options.shared_owner = flags & 16 ? SHARED_OWNER_LAST : SHARED_OWNER_NONE;
    f->options.hostname_label = (enum hostname_label)(flags >> 6);
    play(f, &in);
    fixture_free(f);
    return 0;
}
