/* The plain C rows: the reference meaning of every format. */
#ifndef QCCL_QUANT_C_KERNELS_H
#define QCCL_QUANT_C_KERNELS_H

#include "quant/kernels.h"

void encode_int8_c(const struct encode_args *args);
void decode_int8_c(const struct decode_args *args);
void decode_add_int8_c(const struct decode_args *args);
void sum_int8_c(const struct sum_args *args);

void encode_int4_c(const struct encode_args *args);
void decode_int4_c(const struct decode_args *args);
void decode_add_int4_c(const struct decode_args *args);
void sum_int4_c(const struct sum_args *args);

void encode_int2_c(const struct encode_args *args);
void decode_int2_c(const struct decode_args *args);
void decode_add_int2_c(const struct decode_args *args);
void sum_int2_c(const struct sum_args *args);

void encode_sr1_c(const struct encode_args *args);
void encode_sign1_c(const struct encode_args *args);
void decode_bit1_c(const struct decode_args *args);
void decode_add_bit1_c(const struct decode_args *args);
void sum_bit1_c(const struct sum_args *args);

void encode_bf16_c(const struct encode_args *args);
void decode_bf16_c(const struct decode_args *args);
void decode_add_bf16_c(const struct decode_args *args);
void sum_bf16_c(const struct sum_args *args);

void encode_none_c(const struct encode_args *args);
void decode_none_c(const struct decode_args *args);
void decode_add_none_c(const struct decode_args *args);
void sum_none_c(const struct sum_args *args);

void load_bf16_c(float *out, const void *in, size_t elems);
void load_fp16_c(float *out, const void *in, size_t elems);
void store_bf16_c(void *out, const float *in, size_t elems);
void store_fp16_c(void *out, const float *in, size_t elems);
void subtract_c(float *x, const float *y, size_t elems);
void hadamard_c(float *x, size_t elems, size_t order);
void scale_c(float *x, float weight, size_t elems);

#endif
