// SPDX-License-Identifier: Apache-2.0
// What the CUDA driver API is made of, as far as the double has it; from NVIDIA's CUDA Driver API
// reference.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct cuda_context *CUcontext;
typedef struct cuda_module *CUmodule;
typedef struct cuda_function *CUfunction;
typedef struct cuda_stream *CUstream;
typedef struct cuda_event *CUevent;
typedef struct {
    unsigned char bytes[16];
} CUuuid;

// X(code, name, text)
#define CUDA_RESULTS(X)                                                                            \
    X(0, SUCCESS, "no error")                                                                      \
    X(1, INVALID_VALUE, "invalid argument")                                                        \
    X(2, OUT_OF_MEMORY, "out of memory")                                                           \
    X(3, NOT_INITIALIZED, "initialization error")                                                  \
    X(4, DEINITIALIZED, "driver shutting down")                                                    \
    X(34, STUB_LIBRARY, "CUDA driver is a stub library")                                           \
    X(46, DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable")                 \
    X(100, NO_DEVICE, "no CUDA-capable device is detected")                                        \
    X(101, INVALID_DEVICE, "invalid device ordinal")                                               \
    X(200, INVALID_IMAGE, "device kernel image is invalid")                                        \
    X(201, INVALID_CONTEXT, "invalid device context")                                              \
    X(209, NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")          \
    X(214, ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")                               \
    X(217, PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")      \
    X(218, INVALID_PTX, "a PTX JIT compilation failed")                                            \
    X(222, UNSUPPORTED_PTX_VERSION,                                                                \
      "the provided PTX was compiled with an unsupported toolchain.")                              \
    X(400, INVALID_HANDLE, "invalid resource handle")                                              \
    X(500, NOT_FOUND, "named symbol not found")                                                    \
    X(600, NOT_READY, "device not ready")                                                          \
    X(700, ILLEGAL_ADDRESS, "an illegal memory access was encountered")                            \
    X(701, LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")                     \
    X(702, LAUNCH_TIMEOUT, "the launch timed out and was terminated")                              \
    X(704, PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")                          \
    X(715, ILLEGAL_INSTRUCTION, "an illegal instruction was encountered")                          \
    X(716, MISALIGNED_ADDRESS, "misaligned address")                                               \
    X(719, LAUNCH_FAILED, "unspecified launch failure")                                            \
    X(802, SYSTEM_NOT_READY, "system not yet initialized")                                         \
    X(803, SYSTEM_DRIVER_MISMATCH,                                                                 \
      "system has unsupported display driver / cuda driver combination")                           \
    X(804, COMPAT_NOT_SUPPORTED_ON_DEVICE,                                                         \
      "forward compatibility was attempted on non supported HW")                                   \
    X(999, UNKNOWN, "unknown error")

enum {
#define CUDA_RESULT(code, name, text) CUDA_ERROR_##name = code,
    CUDA_RESULTS(CUDA_RESULT)
#undef CUDA_RESULT
};
#define CUDA_SUCCESS CUDA_ERROR_SUCCESS

#define CU_EVENT_DISABLE_TIMING 2u
#define CU_JIT_INFO_LOG_BUFFER 3
#define CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES 4
#define CU_JIT_ERROR_LOG_BUFFER 5
#define CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES 6
