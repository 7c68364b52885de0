/* The tables of kernel rows, and the one place that knows which instruction sets were built. */
#include "quant/kernels.h"

#include "quant/c_kernels.h"

#if QCCL_HAVE_X86
#include "quant/x86/x86_kernels.h"
#endif

/* Emulated AVX-512 rows (meson's avx512=emulated, for testing them anywhere) need what they are
 * emulated with. */
#if QCCL_EMULATED_AVX512
#define AVX512_NEEDS QCCL_CPU_AVX2
#else
#define AVX512_NEEDS QCCL_CPU_AVX512
#endif

static const struct kernels none_kernels[] = {
    {.name = "none_c",
     .cpu = QCCL_CPU_C,
     .encode = encode_none_c,
     .decode = decode_none_c,
     .decode_add = decode_add_none_c,
     .sum = sum_none_c},
    {.name = NULL},
};

static const struct kernels bf16_kernels[] = {
#if QCCL_HAVE_X86
#if QCCL_HAVE_AVX512
    {.name = "bf16_avx512",
     .cpu = AVX512_NEEDS,
     .encode = encode_bf16_avx512,
     .decode = decode_bf16_avx512,
     .decode_add = decode_add_bf16_avx512,
     .sum = sum_bf16_avx512},
#endif
    {.name = "bf16_avx2",
     .cpu = QCCL_CPU_AVX2,
     .encode = encode_bf16_avx2,
     .decode = decode_bf16_avx2,
     .decode_add = decode_add_bf16_avx2,
     .sum = sum_bf16_avx2},
#endif
    {.name = "bf16_c",
     .cpu = QCCL_CPU_C,
     .encode = encode_bf16_c,
     .decode = decode_bf16_c,
     .decode_add = decode_add_bf16_c,
     .sum = sum_bf16_c},
    {.name = NULL},
};

static const struct kernels int8_kernels[] = {
#if QCCL_HAVE_X86
#if QCCL_HAVE_AVX512
    {.name = "int8_avx512",
     .cpu = AVX512_NEEDS,
     .encode = encode_int8_avx512,
     .decode = decode_int8_avx512,
     .decode_add = decode_add_int8_avx512,
     .sum = sum_int8_avx512},
#endif
    {.name = "int8_avx2",
     .cpu = QCCL_CPU_AVX2,
     .encode = encode_int8_avx2,
     .decode = decode_int8_avx2,
     .decode_add = decode_add_int8_avx2,
     .sum = sum_int8_avx2},
#endif
    {.name = "int8_c",
     .cpu = QCCL_CPU_C,
     .encode = encode_int8_c,
     .decode = decode_int8_c,
     .decode_add = decode_add_int8_c,
     .sum = sum_int8_c},
    {.name = NULL},
};

static const struct kernels int4_kernels[] = {
#if QCCL_HAVE_X86
#if QCCL_HAVE_AVX512
    {.name = "int4_avx512",
     .cpu = AVX512_NEEDS,
     .encode = encode_int4_avx512,
     .decode = decode_int4_avx512,
     .decode_add = decode_add_int4_avx512,
     .sum = sum_int4_avx512},
#endif
    {.name = "int4_avx2",
     .cpu = QCCL_CPU_AVX2,
     .encode = encode_int4_avx2,
     .decode = decode_int4_avx2,
     .decode_add = decode_add_int4_avx2,
     .sum = sum_int4_avx2},
#endif
    {.name = "int4_c",
     .cpu = QCCL_CPU_C,
     .encode = encode_int4_c,
     .decode = decode_int4_c,
     .decode_add = decode_add_int4_c,
     .sum = sum_int4_c},
    {.name = NULL},
};

static const struct kernels int2_kernels[] = {
#if QCCL_HAVE_X86
#if QCCL_HAVE_AVX512
    {.name = "int2_avx512",
     .cpu = AVX512_NEEDS,
     .encode = encode_int2_avx512,
     .decode = decode_int2_avx512,
     .decode_add = decode_add_int2_avx512,
     .sum = sum_int2_avx512},
#endif
    {.name = "int2_avx2",
     .cpu = QCCL_CPU_AVX2,
     .encode = encode_int2_avx2,
     .decode = decode_int2_avx2,
     .decode_add = decode_add_int2_avx2,
     .sum = sum_int2_avx2},
#endif
    {.name = "int2_c",
     .cpu = QCCL_CPU_C,
     .encode = encode_int2_c,
     .decode = decode_int2_c,
     .decode_add = decode_add_int2_c,
     .sum = sum_int2_c},
    {.name = NULL},
};

static const struct kernels sr1_kernels[] = {
#if QCCL_HAVE_X86
#if QCCL_HAVE_AVX512
    {.name = "sr1_avx512",
     .cpu = AVX512_NEEDS,
     .encode = encode_sr1_avx512,
     .decode = decode_bit1_avx512,
     .decode_add = decode_add_bit1_avx512,
     .sum = sum_bit1_avx512},
#endif
    {.name = "sr1_avx2",
     .cpu = QCCL_CPU_AVX2,
     .encode = encode_sr1_avx2,
     .decode = decode_bit1_avx2,
     .decode_add = decode_add_bit1_avx2,
     .sum = sum_bit1_avx2},
#endif
    {.name = "sr1_c",
     .cpu = QCCL_CPU_C,
     .encode = encode_sr1_c,
     .decode = decode_bit1_c,
     .decode_add = decode_add_bit1_c,
     .sum = sum_bit1_c},
    {.name = NULL},
};

static const struct kernels sign1_kernels[] = {
#if QCCL_HAVE_X86
#if QCCL_HAVE_AVX512
    {.name = "sign1_avx512",
     .cpu = AVX512_NEEDS,
     .encode = encode_sign1_avx512,
     .decode = decode_bit1_avx512,
     .decode_add = decode_add_bit1_avx512,
     .sum = sum_bit1_avx512},
#endif
    {.name = "sign1_avx2",
     .cpu = QCCL_CPU_AVX2,
     .encode = encode_sign1_avx2,
     .decode = decode_bit1_avx2,
     .decode_add = decode_add_bit1_avx2,
     .sum = sum_bit1_avx2},
#endif
    {.name = "sign1_c",
     .cpu = QCCL_CPU_C,
     .encode = encode_sign1_c,
     .decode = decode_bit1_c,
     .decode_add = decode_add_bit1_c,
     .sum = sum_bit1_c},
    {.name = NULL},
};

static const struct converters converter_rows[] = {
#if QCCL_HAVE_X86
#if QCCL_HAVE_AVX512
    {.name = "convert_avx512",
     .cpu = AVX512_NEEDS,
     .load_bf16 = load_bf16_avx512,
     .load_fp16 = load_fp16_avx512,
     .store_bf16 = store_bf16_avx512,
     .store_fp16 = store_fp16_avx512,
     .subtract = subtract_avx512,
     .hadamard = hadamard_avx512,
     .scale = scale_avx512},
#endif
    {.name = "convert_avx2",
     .cpu = QCCL_CPU_AVX2,
     .load_bf16 = load_bf16_avx2,
     .load_fp16 = load_fp16_avx2,
     .store_bf16 = store_bf16_avx2,
     .store_fp16 = store_fp16_avx2,
     .subtract = subtract_avx2,
     .hadamard = hadamard_avx2,
     .scale = scale_avx2},
#endif
    {.name = "convert_c",
     .cpu = QCCL_CPU_C,
     .load_bf16 = load_bf16_c,
     .load_fp16 = load_fp16_c,
     .store_bf16 = store_bf16_c,
     .store_fp16 = store_fp16_c,
     .subtract = subtract_c,
     .hadamard = hadamard_c,
     .scale = scale_c},
    {.name = NULL},
};

static const struct kernels *const tables[qcclNumFormats] = {
    [qcclFormatNone] = none_kernels,   [qcclFormatBf16] = bf16_kernels,
    [qcclFormatInt8] = int8_kernels,   [qcclFormatInt4] = int4_kernels,
    [qcclFormatInt2] = int2_kernels,   [qcclFormatSr1] = sr1_kernels,
    [qcclFormatSign1] = sign1_kernels,
};

const struct kernels *qccl_kernel_rows(qcclFormat_t format)
{
    return tables[format];
}

const struct converters *qccl_converter_rows(void)
{
    return converter_rows;
}

const struct kernels *qccl_kernels(qcclFormat_t format)
{
    const struct kernels *row = tables[format];
    while (row->cpu > qccl_cpu_level())
        row++;
    return row;
}

const struct converters *qccl_converters(void)
{
    const struct converters *row = converter_rows;
    while (row->cpu > qccl_cpu_level())
        row++;
    return row;
}

const struct kernels *qccl_kernels_c(qcclFormat_t format)
{
    const struct kernels *row = tables[format];
    while (row[1].name)
        row++;
    return row;
}
