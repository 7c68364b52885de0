/* Attention as small matrix products, one set for each sequence and head.
 *
 * A head's queries, keys and values are strided blocks of qkv, which BLAS takes as they are, so
 * nothing is copied or transposed.  What the causal mask hides is computed and thrown away: at
 * these sizes that is cheaper than products of many shapes. */
#include "bench/gpt/attention.h"

#include "bench/gpt/vector.h"

/* c[m][n] = scale * op(a) op(b), the inner dimension being k */
static void product(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, int m, int n, int k, real scale,
                    const real *a, int stride_a, const real *b, int stride_b, real *c, int stride_c)
{
    gpt_blas_gemm(CblasRowMajor, op_a, op_b, m, n, k, scale, a, stride_a, b, stride_b, 0, c,
                  stride_c);
}

/* Where the values of one head of one sequence lie. */
struct head {
    size_t in;  /* its queries in qkv; keys and values follow at width and 2 * width */
    size_t out; /* in the output */
    size_t square;
    int width;
};

static struct head find_head(const struct gpt_attention *shape, int sequence, int index)
{
    size_t context = (size_t)shape->context, width = (size_t)shape->width;
    size_t head_width = width / (size_t)shape->heads;
    size_t token = (size_t)sequence * context, column = (size_t)index * head_width;
    size_t square = (size_t)sequence * (size_t)shape->heads + (size_t)index;
    return (struct head){
        .in = token * 3 * width + column,
        .out = token * width + column,
        .square = square * context * context,
        .width = (int)head_width,
    };
}

static void head_forward(const struct gpt_attention *shape, const struct head *head, real *out,
                         real *probabilities, const real *qkv)
{
    int t = shape->context, d = head->width, stride = 3 * shape->width;
    const real *query = qkv + head->in, *key = query + shape->width, *value = key + shape->width;
    real *square = probabilities + head->square;
    real scale = 1 / gpt_sqrt((real)d);
    product(CblasNoTrans, CblasTrans, t, t, d, scale, query, stride, key, stride, square, t);
    for (int i = 0; i < t; i++) {
        real *row = square + (size_t)i * (size_t)t;
        size_t seen = (size_t)i + 1;
        gpt_softmax(row, seen);
        memset(row + seen, 0, ((size_t)t - seen) * sizeof *row);
    }
    product(CblasNoTrans, CblasNoTrans, t, d, t, 1, square, t, value, stride, out + head->out,
            shape->width);
}

void gpt_attention_forward(const struct gpt_attention *shape, real *out, real *probabilities,
                           const real *qkv)
{
    for (int sequence = 0; sequence < shape->batch; sequence++) {
        for (int index = 0; index < shape->heads; index++) {
            struct head head = find_head(shape, sequence, index);
            head_forward(shape, &head, out, probabilities, qkv);
        }
    }
}

/* With P = softmax(S), S = scale Q K^T, O = P V:
 *   1. dV = P^T dO
 *   2. dP = dO V^T
 *   3. dS = P * (dP - sum of P * dP over the row)
 *   4. dQ = scale dS K and dK = scale dS^T Q */
static void head_backward(const struct gpt_attention *shape, const struct head *head, real *d_qkv,
                          const real *d_out, const real *qkv, const real *probabilities,
                          real *scratch)
{
    int t = shape->context, d = head->width, width = shape->width, stride = 3 * width;
    const real *query = qkv + head->in, *key = query + width, *value = key + width;
    real *d_query = d_qkv + head->in, *d_key = d_query + width, *d_value = d_key + width;
    const real *square = probabilities + head->square, *d_o = d_out + head->out;
    real scale = 1 / gpt_sqrt((real)d);
    product(CblasTrans, CblasNoTrans, t, d, t, 1, square, t, d_o, width, d_value, stride);
    product(CblasNoTrans, CblasTrans, t, t, d, 1, d_o, width, value, stride, scratch, t);
    for (int i = 0; i < t; i++) {
        size_t row = (size_t)i * (size_t)t;
        real sum = gpt_dot(square + row, scratch + row, (size_t)i + 1);
        for (size_t j = row; j < row + (size_t)t; j++)
            scratch[j] = square[j] * (scratch[j] - sum);
    }
    product(CblasNoTrans, CblasNoTrans, t, d, t, scale, scratch, t, key, stride, d_query, stride);
    product(CblasTrans, CblasNoTrans, t, d, t, scale, scratch, t, query, stride, d_key, stride);
}

void gpt_attention_backward(const struct gpt_attention *shape, real *d_qkv, const real *d_out,
                            const real *qkv, const real *probabilities, real *scratch)
{
    for (int sequence = 0; sequence < shape->batch; sequence++) {
        for (int index = 0; index < shape->heads; index++) {
            struct head head = find_head(shape, sequence, index);
            head_backward(shape, &head, d_qkv, d_out, qkv, probabilities, scratch);
        }
    }
}
