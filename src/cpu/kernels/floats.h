// ROW(FP32, fp32, …) for each type that is an array of floating-point numbers. Tables of functions are made with it.
#pragma once

#define FLOAT_TYPES(ROW, ...)                                                                                                  \
    ROW(FP32, fp32, __VA_ARGS__)                                                                                               \
    ROW(FP16, fp16, __VA_ARGS__)                                                                                               \
    ROW(BF16, bf16, __VA_ARGS__)                                                                                               \
    ROW(FP8, fp8, __VA_ARGS__)                                                                                                 \
    ROW(FP8_E5M2, fp8_e5m2, __VA_ARGS__)
