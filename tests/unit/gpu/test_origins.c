// SPDX-License-Identifier: Apache-2.0
// The catalogue says what NVML gives and how; the source's recipes must be those very fields.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu/catalogue.h"
#include "source/nvml_fields.h"

static enum field_origin origin_of(const struct nvml_recipe *recipe)
{
    if (!recipe)
        return FIELD_ORIGIN_NONE;
    switch ((enum nvml_getter)recipe->getter) {
    case GETTER_GPM:
        return FIELD_ORIGIN_GPM;
    case GETTER_XID:
        return FIELD_ORIGIN_EVENT;
    case GETTER_FIELD_VALUE:
    case GETTER_NVLINK_RATE:
        return FIELD_ORIGIN_FIELD_VALUE;
    default:
        return FIELD_ORIGIN_CALL;
    }
}

static void every_field_has_the_recipe_its_row_tells_of(void **state)
{
    (void)state;
    for (size_t i = 0; i < field_table_count; i++) {
        const struct field_info *field = &field_table[i];
        const struct nvml_recipe *recipe = nvml_recipe_find(field->id);
        if (origin_of(recipe) != field->origin)
            fail_msg("field %u: origin %u here, %u in the source", field->id, field->origin,
                     origin_of(recipe));
        if (recipe && recipe->cost != field->cost)
            fail_msg("field %u: class %u here, %u in the source", field->id, field->cost,
                     recipe->cost);
        if (recipe && recipe->getter == GETTER_FIELD_VALUE)
            assert_int_equal(recipe->arg, field->nvml_field_id);
        if (recipe && recipe->getter == GETTER_GPM)
            assert_int_equal(recipe->arg, field->gpm_metric_id);
    }
}

static void every_recipe_is_for_a_field_that_can_be_exported(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < nvml_recipe_count; i++) {
        const struct field_info *field = field_find(nvml_recipe_table[i].field);
        assert_non_null(field);
        assert_int_not_equal(field->type, FIELD_BINARY);
        assert_int_equal(field->type == FIELD_STRING, nvml_recipe_table[i].convert == CONVERT_TEXT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_has_the_recipe_its_row_tells_of),
        cmocka_unit_test(every_recipe_is_for_a_field_that_can_be_exported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
