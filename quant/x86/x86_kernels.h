/* The AVX2 and AVX-512 rows; each format and instruction set is a translation unit of its own. */
#ifndef QCCL_QUANT_X86_X86_KERNELS_H
#define QCCL_QUANT_X86_X86_KERNELS_H

#include "quant/kernels.h"

void encode_int8_avx2(const struct encode_args *args);
void decode_int8_avx2(const struct decode_args *args);
void decode_add_int8_avx2(const struct decode_args *args);
void sum_int8_avx2(const struct sum_args *args);

void encode_int4_avx2(const struct encode_args *args);
void decode_int4_avx2(const struct decode_args *args);
void decode_add_int4_avx2(const struct decode_args *args);
void sum_int4_avx2(const struct sum_args *args);

void encode_int2_avx2(const struct encode_args *args);
void decode_int2_avx2(const struct decode_args *args);
void decode_add_int2_avx2(const struct decode_args *args);
void sum_int2_avx2(const struct sum_args *args);

void encode_sr1_avx2(const struct encode_args *args);
void encode_sign1_avx2(const struct encode_args *args);
void decode_bit1_avx2(const struct decode_args *args);
void decode_add_bit1_avx2(const struct decode_args *args);
void sum_bit1_avx2(const struct sum_args *args);

void encode_bf16_avx2(const struct encode_args *args);
void decode_bf16_avx2(const struct decode_args *args);
void decode_add_bf16_avx2(const struct decode_args *args);
void sum_bf16_avx2(const struct sum_args *args);

void load_bf16_avx2(float *out, const void *in, size_t elems);
void load_fp16_avx2(float *out, const void *in, size_t elems);
void store_bf16_avx2(void *out, const float *in, size_t elems);
void store_fp16_avx2(void *out, const float *in, size_t elems);
void subtract_avx2(float *x, const float *y, size_t elems);
void hadamard_avx2(float *x, size_t elems, size_t order);
void scale_avx2(float *x, float weight, size_t elems);

void encode_int8_avx512(const struct encode_args *args);
void decode_int8_avx512(const struct decode_args *args);
void decode_add_int8_avx512(const struct decode_args *args);
void sum_int8_avx512(const struct sum_args *args);

void encode_int4_avx512(const struct encode_args *args);
void decode_int4_avx512(const struct decode_args *args);
void decode_add_int4_avx512(const struct decode_args *args);
void sum_int4_avx512(const struct sum_args *args);

void encode_int2_avx512(const struct encode_args *args);
void decode_int2_avx512(const struct decode_args *args);
void decode_add_int2_avx512(const struct decode_args *args);
void sum_int2_avx512(const struct sum_args *args);

void encode_sr1_avx512(const struct encode_args *args);
void encode_sign1_avx512(const struct encode_args *args);
void decode_bit1_avx512(const struct decode_args *args);
void decode_add_bit1_avx512(const struct decode_args *args);
void sum_bit1_avx512(const struct sum_args *args);

void encode_bf16_avx512(const struct encode_args *args);
void decode_bf16_avx512(const struct decode_args *args);
void decode_add_bf16_avx512(const struct decode_args *args);
void sum_bf16_avx512(const struct sum_args *args);

void load_bf16_avx512(float *out, const void *in, size_t elems);
void load_fp16_avx512(float *out, const void *in, size_t elems);
void store_bf16_avx512(void *out, const float *in, size_t elems);
void store_fp16_avx512(void *out, const float *in, size_t elems);
void subtract_avx512(float *x, const float *y, size_t elems);
void hadamard_avx512(float *x, size_t elems, size_t order);
void scale_avx512(float *x, float weight, size_t elems);

#endif
