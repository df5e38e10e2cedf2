// SPDX-License-Identifier: Apache-2.0
// Each vendor call and what DCGM makes of its answer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fake_nvml.h"
#include "source/nvml_fields.h"

static struct nvml_entity gpu, instance;
static struct nvml_system nvml_system;

static int setup(void **state)
{
    fake_reset();
    gpu = (struct nvml_entity){
        .record = {.kind = FRAME_ENTITY_GPU,
                   .index = 2,
                   .minor = 3,
                   .uuid = "GPU-1-2",
                   .name = "NVIDIA A10G",
                   .bus_id = "00000000:1B:00.0",
                   .total_slices = 7,
                   .gpm = 1},
        .device = fake_device(2),
    };
    instance = (struct nvml_entity){
        .record = {.kind = FRAME_ENTITY_GPU_I,
                   .index = 2,
                   .uuid = "MIG-9",
                   .legacy_uuid = "MIG-GPU-1-2/7/0",
                   .profile = "1g.10gb",
                   .name = "NVIDIA A10G"},
        .device = fake_slot(2, 0),
    };
    nvml_system = (struct nvml_system){
        .driver_version = "550.1", .library_version = "12.550.1", .cuda_version = 12040};
    return 0;
}

static struct nvml_output get_of(const struct nvml_entity *e, uint16_t field)
{
    static struct nvml_reading reading; // texts are borrowed from it
    const struct nvml_recipe *r = nvml_recipe_find(field);
    struct nvml_getter_context c = {.n = &fake.n, .system = &nvml_system, .entity = e, .gpus = 8};
    struct nvml_output out;
    nvml_get(&c, (enum nvml_getter)r->getter, r->arg, &reading);
    nvml_convert(r, &reading, &out);
    return out;
}

static int64_t number(uint16_t field)
{
    struct nvml_output out = get_of(&gpu, field);
    if (out.status != FRAME_OK || out.type != FRAME_VALUE_I64)
        fail_msg("field %u: status %d", field, out.status);
    return out.i64;
}

static void assert_text(const struct nvml_entity *e, uint16_t field, const char *want)
{
    struct nvml_output out = get_of(e, field);
    if (out.status != FRAME_OK || out.type != FRAME_VALUE_STRING ||
        !sv_equals(out.text, sv_from(want)))
        fail_msg("field %u: status %d, '%.*s'", field, out.status, SV_FMT(out.text));
}

static void identity_comes_from_the_list(void **state)
{
    assert_text(&gpu, 50, "NVIDIA A10G");
    assert_text(&instance, 50, "1g.10gb"); // DCGM's name of a GPU instance is its profile
    assert_text(&gpu, 54, "GPU-1-2");
    assert_text(&instance, 54, "MIG-9");
    assert_text(&gpu, 57, "00000000:1B:00.0");
    assert_text(&gpu, 68, "GPU-1-2");
    assert_text(&instance, 68, "MIG-GPU-1-2/7");
    assert_int_equal(number(52), 2);
    assert_int_equal(number(55), 3);
    assert_int_equal(number(94), 1);
    assert_int_equal(number(67), 0);
    assert_int_equal(number(69), 0); // slices only with MIG on
    gpu.record.mig_enabled = 1;
    assert_text(&gpu, 68, "MIG-GPU-1-2");
    assert_int_equal(number(67), 1);
    assert_int_equal(number(69), 7);
    gpu.record.minor = UINT32_MAX;
    assert_int_equal(get_of(&gpu, 55).status, FRAME_NOT_SUPPORTED);
}

static void the_system_is_read_once(void **state)
{
    assert_text(&gpu, 1, "550.1");
    assert_text(&gpu, 2, "12.550.1");
    assert_int_equal(number(4), 8);
    assert_int_equal(number(5), 12040);
    nvml_system.cuda_result = NVML_ERROR_FUNCTION_NOT_FOUND;
    assert_int_equal(get_of(&gpu, 5).status, FRAME_NO_SYMBOL);
    assert_int_equal(fake.n.calls, 0);
}

static nvmlReturn_t get_brand(nvmlDevice_t device, int *out)
{
    *out = (int)fake.gpu[2].temperature;
    return NVML_SUCCESS;
}

static void brands_have_dcgms_texts(void **state)
{
    static const struct {
        unsigned brand;
        const char *text;
    } cases[] = {{0, "Unknown"},         {2, "Tesla"},
                 {5, "GeForce"},         {9, "NVIDIA Virtual Compute Server"},
                 {11, "NVIDIA vGaming"}, {14, "NVIDIA"},
                 {16, "Titan RTX"},      {17, "Unknown"},
                 {99, "Unknown"}};
    fake.n.fn.nvmlDeviceGetBrand = get_brand;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fake.gpu[2].temperature = cases[i].brand;
        assert_text(&gpu, 51, cases[i].text);
    }
}

static nvmlReturn_t get_capability(nvmlDevice_t device, int *major, int *minor)
{
    *major = 9;
    *minor = 1;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_compute_mode(nvmlDevice_t device, int *mode)
{
    *mode = (int)fake.gpu[2].temperature;
    return NVML_SUCCESS;
}

static void capability_and_compute_mode_are_packed_as_dcgm_does(void **state)
{
    fake.n.fn.nvmlDeviceGetCudaComputeCapability = get_capability;
    assert_int_equal(number(63), 9 << 16 | 1);
    fake.n.fn.nvmlDeviceGetComputeMode = get_compute_mode;
    fake.gpu[2].temperature = 0;
    assert_int_equal(number(65), 0);
    fake.gpu[2].temperature = NVML_COMPUTEMODE_PROHIBITED;
    assert_int_equal(number(65), 1);
    fake.gpu[2].temperature = NVML_COMPUTEMODE_EXCLUSIVE_PROCESS;
    assert_int_equal(number(65), 2);
}

static void old_memory_counts_reserved_inside_used(void **state)
{
    fake.gpu[2].memory = (nvmlMemory_v2_t){
        .total = 100ull << 20, .reserved = 10ull << 20, .free = 60ull << 20, .used = 30ull << 20};
    fake.n.fn.nvmlDeviceGetMemoryInfo_v2 = NULL;
    assert_int_equal(number(252), 40);
    assert_int_equal(get_of(&gpu, 253).status, FRAME_NOT_SUPPORTED);
    assert_true(get_of(&gpu, 254).f64 == 0.4);
    assert_true(fake.n.memory_first_generation);
}

static nvmlReturn_t lacks_memory_v2(nvmlDevice_t device, nvmlMemory_v2_t *out);

static void one_driver_has_one_way_of_counting_memory(void **state)
{
    fake.gpu[2].memory = (nvmlMemory_v2_t){
        .total = 100ull << 20, .reserved = 10ull << 20, .free = 60ull << 20, .used = 30ull << 20};
    assert_int_equal(number(252), 30);
    assert_int_equal(number(253), 10);
    fake.n.fn.nvmlDeviceGetMemoryInfo_v2 = lacks_memory_v2; // a failure in passing
    assert_int_equal(get_of(&gpu, 252).status, FRAME_NO_SYMBOL);
    assert_false(fake.n.memory_first_generation);
}

static nvmlReturn_t lacks_memory_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static void a_library_newer_than_its_driver_is_asked_for_new_memory_once(void **state)
{
    fake.n.fn.nvmlDeviceGetMemoryInfo_v2 = lacks_memory_v2;
    (void)number(252);
    assert_int_equal(fake.n.calls, 2);
    (void)number(252);
    assert_int_equal(fake.n.calls, 3);
}

static void a_memory_of_nothing_has_no_ratio(void **state)
{
    assert_int_equal(get_of(&gpu, 254).status, FRAME_NO_DATA);
    assert_int_equal(number(250), 0);
}

static nvmlReturn_t deprecated_temperature(nvmlDevice_t device, int sensor, unsigned int *out)
{
    return NVML_ERROR_DEPRECATED;
}

static nvmlReturn_t get_temperature_v(nvmlDevice_t device, nvmlTemperature_v1_t *out)
{
    if (out->version != 0x100000c || out->sensorType != 0)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->temperature = 71;
    return NVML_SUCCESS;
}

static void the_new_temperature_function_is_the_fallback(void **state)
{
    assert_int_equal(number(150), 42);
    fake.n.fn.nvmlDeviceGetTemperatureV = get_temperature_v;
    assert_int_equal(number(150), 42);
    fake.n.fn.nvmlDeviceGetTemperature = deprecated_temperature;
    assert_int_equal(number(150), 71);
    fake.n.fn.nvmlDeviceGetTemperature = NULL;
    assert_int_equal(number(150), 71);
    fake.n.fn.nvmlDeviceGetTemperatureV = NULL;
    assert_int_equal(get_of(&gpu, 150).status, FRAME_NO_SYMBOL);
}

static nvmlReturn_t get_margin(nvmlDevice_t device, nvmlMarginTemperature_v1_t *out)
{
    out->marginTemperature = -3;
    return out->version == 0x1000008 ? NVML_SUCCESS : NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

static void a_margin_may_be_negative(void **state)
{
    fake.n.fn.nvmlDeviceGetMarginTemperature = get_margin;
    assert_int_equal(number(153), -3);
}

static nvmlReturn_t get_limits(nvmlDevice_t device, unsigned int *least, unsigned int *most)
{
    *least = 100999;
    *most = 300000;
    return NVML_SUCCESS;
}

static void power_limits_are_whole_watts(void **state)
{
    fake.n.fn.nvmlDeviceGetPowerManagementLimitConstraints = get_limits;
    assert_true(get_of(&gpu, 161).f64 == 100.0);
    assert_true(get_of(&gpu, 162).f64 == 300.0);
}

static nvmlReturn_t count_retired(nvmlDevice_t device, int cause, unsigned int *count,
                                  unsigned long long *pages)
{
    *count = 5;
    return cause == 0 && !pages ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_ERROR_INVALID_ARGUMENT;
}

static void retired_pages_are_counted_without_being_fetched(void **state)
{
    fake.n.fn.nvmlDeviceGetRetiredPages = count_retired;
    assert_int_equal(number(390), 5);
}

static nvmlReturn_t count_ecc(nvmlDevice_t device, int type, int counter, int location,
                              unsigned long long *out)
{
    *out = (unsigned long long)(type * 100 + counter * 10 + location);
    return NVML_SUCCESS;
}

static void ecc_counters_ask_for_their_type_counter_and_location(void **state)
{
    fake.n.fn.nvmlDeviceGetMemoryErrorCounter = count_ecc;
    assert_int_equal(number(314), 0); // corrected, volatile, L1
    assert_int_equal(number(315), 100);
    assert_int_equal(number(318), 2);   // device memory
    assert_int_equal(number(333), 114); // uncorrected, aggregate, texture
    assert_int_equal(number(345), 117); // uncorrected, aggregate, SRAM
    assert_int_equal(number(336), 6);   // corrected, volatile, CBU
}

static nvmlReturn_t count_link(nvmlDevice_t device, unsigned int link, int counter,
                               unsigned long long *out)
{
    *out = link * 10 + (unsigned)counter;
    return NVML_SUCCESS;
}

static void nvlink_errors_ask_for_their_link_and_counter(void **state)
{
    fake.n.fn.nvmlDeviceGetNvLinkErrorCounter = count_link;
    assert_int_equal(number(400), 2);   // flit CRC, link 0
    assert_int_equal(number(408), 142); // flit CRC, link 14
    assert_int_equal(number(415), 53);  // data CRC, link 5
    assert_int_equal(number(468), 110); // replay, link 11
    assert_int_equal(number(493), 171); // recovery, link 17
}

static nvmlReturn_t validate_inforom(nvmlDevice_t device)
{
    return (nvmlReturn_t)fake.gpu[2].temperature;
}

static void a_corrupt_inforom_is_a_value(void **state)
{
    fake.n.fn.nvmlDeviceValidateInforom = validate_inforom;
    fake.gpu[2].temperature = NVML_SUCCESS;
    assert_int_equal(number(84), 1);
    fake.gpu[2].temperature = NVML_ERROR_CORRUPTED_INFOROM;
    assert_int_equal(number(84), 0);
    fake.gpu[2].temperature = NVML_ERROR_NOT_SUPPORTED;
    assert_int_equal(get_of(&gpu, 84).status, FRAME_NOT_SUPPORTED);
}

static nvmlGridLicensableFeatures_t licenses;

static nvmlReturn_t get_licenses(nvmlDevice_t device, nvmlGridLicensableFeatures_t *out)
{
    *out = licenses;
    return NVML_SUCCESS;
}

static void add_license(unsigned at, size_t each, unsigned code, unsigned license_state)
{
    unsigned int feature[2] = {code, license_state};
    memcpy((char *)licenses.gridLicensableFeatures + at * each, feature, sizeof(feature));
}

static void the_vgpu_licence_follows_dcgms_rule(void **state)
{
    assert_int_equal(get_of(&gpu, 526).status, FRAME_NO_SYMBOL);
    fake.n.fn.nvmlDeviceGetGridLicensableFeatures = get_licenses;
    fake.n.fn.generation.nvmlDeviceGetGridLicensableFeatures = 1;
    licenses = (nvmlGridLicensableFeatures_t){0};
    assert_int_equal(number(526), 0); // no licence is needed
    licenses.isGridLicenseSupported = 1;
    licenses.licensableFeaturesCount = 2;
    add_license(0, 284, 2, 5);
    add_license(1, 284, 4, 5);
    assert_int_equal(get_of(&gpu, 526).status,
                     FRAME_NO_DATA); // without the vGPU feature there is no value
    add_license(1, 284, NVML_GRID_LICENSE_FEATURE_CODE_VGPU, 0);
    assert_int_equal(number(526), 0);
    add_license(1, 284, NVML_GRID_LICENSE_FEATURE_CODE_VGPU, 5);
    assert_int_equal(number(526), 1);

    // Features of the third generation lie closer together.
    fake.n.fn.generation.nvmlDeviceGetGridLicensableFeatures = 2;
    licenses = (nvmlGridLicensableFeatures_t){.isGridLicenseSupported = 1,
                                              .licensableFeaturesCount = 1000};
    add_license(2, 268, NVML_GRID_LICENSE_FEATURE_CODE_VGPU, 1);
    assert_int_equal(number(526), 1);
}

static nvmlGpuFabricInfo_v3_t fabric;
static unsigned fabric_version;

static nvmlReturn_t get_fabric_v(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *out)
{
    if (out->version != fabric_version)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned char *to = (unsigned char *)out;
    memcpy(to + 4, (const unsigned char *)&fabric + 4, (fabric_version & 0xffffff) - 4);
    return NVML_SUCCESS;
}

static nvmlReturn_t get_fabric_1(nvmlDevice_t device, nvmlGpuFabricInfo_t *out)
{
    *out = (nvmlGpuFabricInfo_t){.state = 2, .cliqueId = 9};
    return NVML_SUCCESS;
}

static void the_fabric_speaks_dcgms_codes_in_each_version(void **state)
{
    fabric = (nvmlGpuFabricInfo_v3_t){.state = NVML_GPU_FABRIC_STATE_COMPLETED,
                                      .cliqueId = 4,
                                      .healthMask = 0x55,
                                      .healthSummary = 1};
    for (unsigned char i = 0; i < 16; i++)
        fabric.clusterUuid[i] = (unsigned char)(i * 0x11);
    fabric_version = 0x3000028;
    fake.n.fn.nvmlDeviceGetGpuFabricInfoV = get_fabric_v;
    assert_int_equal(number(170), 3);
    assert_int_equal(number(171), 0);
    assert_text(&gpu, 172, "00112233-4455-6677-8899-aabbccddeeff");
    assert_int_equal(number(173), 4);
    assert_int_equal(number(174), 0x55);
    assert_int_equal(number(175), 1);
    fabric.status = NVML_ERROR_UNKNOWN;
    assert_int_equal(number(170), 4);
    assert_int_equal(number(171), 999);
    fabric.state = NVML_GPU_FABRIC_STATE_IN_PROGRESS;
    assert_int_equal(number(170), 2);
    assert_int_equal(get_of(&gpu, 171).status, FRAME_NO_DATA);
    fabric.state = 77;
    assert_int_equal(number(170), 5);

    fabric_version = 0x2000024;
    fabric.state = NVML_GPU_FABRIC_STATE_NOT_STARTED;
    assert_int_equal(number(170), 1);
    assert_int_equal(number(174), 0x55);
    assert_int_equal(get_of(&gpu, 175).status, FRAME_NO_SYMBOL);

    fake.n.fn.nvmlDeviceGetGpuFabricInfoV = NULL;
    assert_int_equal(get_of(&gpu, 170).status, FRAME_NO_SYMBOL);
    fake.n.fn.nvmlDeviceGetGpuFabricInfo = get_fabric_1;
    assert_int_equal(number(170), 2);
    assert_int_equal(number(173), 9);
    assert_int_equal(get_of(&gpu, 174).status, FRAME_NO_SYMBOL);
}

static nvmlPlatformInfo_v2_t platform;

static nvmlReturn_t get_platform(nvmlDevice_t device, nvmlPlatformInfo_v2_t *out)
{
    if (out->version != 0x200002c)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *out = platform;
    return NVML_SUCCESS;
}

static void what_the_platform_does_not_say_has_no_value(void **state)
{
    fake.n.fn.nvmlDeviceGetPlatformInfo = get_platform;
    platform = (nvmlPlatformInfo_v2_t){
        .slotNumber = 255, .trayIndex = 255, .hostId = 1, .peerType = 2, .moduleId = 3};
    assert_int_equal(get_of(&gpu, 572).status, FRAME_NO_DATA);
    assert_int_equal(get_of(&gpu, 573).status, FRAME_NO_DATA);
    assert_int_equal(get_of(&gpu, 574).status, FRAME_NO_DATA);
    assert_int_equal(number(575), 1);
    assert_int_equal(number(576), 2);
    assert_int_equal(number(577), 3);
    platform.slotNumber = 4;
    platform.trayIndex = 5;
    platform.chassisSerialNumber[15] = 0xab;
    assert_int_equal(number(573), 4);
    assert_int_equal(number(574), 5);
    assert_text(&gpu, 572, "00000000-0000-0000-0000-0000000000ab");
}

static nvmlReturn_t no_terminator(nvmlDevice_t device, char *out, unsigned int bytes)
{
    memset(out, 'x', bytes);
    return NVML_SUCCESS;
}

static void a_text_that_fills_its_buffer_is_bounded(void **state)
{
    fake.n.fn.nvmlDeviceGetSerial = no_terminator;
    struct nvml_output out = get_of(&gpu, 53);
    assert_int_equal(out.text.len, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(identity_comes_from_the_list, setup),
        cmocka_unit_test_setup(the_system_is_read_once, setup),
        cmocka_unit_test_setup(brands_have_dcgms_texts, setup),
        cmocka_unit_test_setup(capability_and_compute_mode_are_packed_as_dcgm_does, setup),
        cmocka_unit_test_setup(old_memory_counts_reserved_inside_used, setup),
        cmocka_unit_test_setup(one_driver_has_one_way_of_counting_memory, setup),
        cmocka_unit_test_setup(a_library_newer_than_its_driver_is_asked_for_new_memory_once, setup),
        cmocka_unit_test_setup(a_memory_of_nothing_has_no_ratio, setup),
        cmocka_unit_test_setup(the_new_temperature_function_is_the_fallback, setup),
        cmocka_unit_test_setup(a_margin_may_be_negative, setup),
        cmocka_unit_test_setup(power_limits_are_whole_watts, setup),
        cmocka_unit_test_setup(retired_pages_are_counted_without_being_fetched, setup),
        cmocka_unit_test_setup(ecc_counters_ask_for_their_type_counter_and_location, setup),
        cmocka_unit_test_setup(nvlink_errors_ask_for_their_link_and_counter, setup),
        cmocka_unit_test_setup(a_corrupt_inforom_is_a_value, setup),
        cmocka_unit_test_setup(the_vgpu_licence_follows_dcgms_rule, setup),
        cmocka_unit_test_setup(the_fabric_speaks_dcgms_codes_in_each_version, setup),
        cmocka_unit_test_setup(what_the_platform_does_not_say_has_no_value, setup),
        cmocka_unit_test_setup(a_text_that_fills_its_buffer_is_bounded, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
