/* A libcublasLt.so.13 that makes products one element after another, beside stub_cuda.c.

   Nonsense is answered with CUBLAS_STATUS_INVALID_VALUE. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 7, FAILED = 13, NOT_SUPPORTED = 15 };
enum { F32 = 0, F64 = 1, BF16 = 14 };                 /* cudaDataType */
enum { COMPUTE_32F = 68, COMPUTE_64F = 70 };          /* cublasComputeType_t */
enum { RELU = 2, BIAS = 4, GELU = 32 };               /* bits of cublasLtEpilogue_t */
enum { ALGORITHMS = 4, WORKSPACE = 64, MAGIC = 4711 };

typedef struct { int type; uint64_t rows, columns; int64_t lead, step; int32_t batch; } Layout;
typedef struct { int compute, scale, left, right; unsigned epilogue; char *bias; } Operation;
typedef struct { uint64_t workspace; unsigned alignment[4]; } Preference;
typedef struct { uint64_t magic, number, more[6]; } Algorithm;
typedef struct { Algorithm algo; size_t workspace; int state; float waves; int more[4]; } Found;
typedef struct { Operation o; Layout a, b, c, d; char *at[4]; double alpha, beta; } Call;

size_t cublasLtGetVersion(void) { return 130100; }
size_t cublasLtGetCudartVersion(void) { return 13000; }
const char *cublasLtGetStatusName(int status) {
    return status == INVALID ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED" : "CUBLAS_STATUS_OTHER";
}
const char *cublasLtGetStatusString(int status) { return cublasLtGetStatusName(status); }
int cublasLtCreate(void **made) { return *made = (void *)0xb1a5, OK; }

int cublasLtMatmulDescCreate(Operation **made, int compute, int scale) {
    *made = calloc(1, sizeof **made);
    (*made)->compute = compute, (*made)->scale = scale, (*made)->epilogue = 1;
    return (compute == COMPUTE_64F) == (scale == F64) ? OK : INVALID;
}
int cublasLtMatmulDescDestroy(Operation *o) { return memset(o, -1, sizeof *o), free(o), OK; }
int cublasLtMatmulDescSetAttribute(Operation *o, int which, const void *value, size_t size) {
    void *places[] = {[3] = &o->left, [4] = &o->right, [7] = &o->epilogue, [8] = &o->bias};
    if (which < 3 || which > 8 || !places[which] || size != (which == 8 ? 8 : 4)) return INVALID;
    return memcpy(places[which], value, size), OK;
}

int cublasLtMatrixLayoutCreate(Layout **made, int type, uint64_t rows, uint64_t columns,
                               int64_t lead) {
    *made = calloc(1, sizeof **made);
    **made = (Layout){type, rows, columns, lead, 0, 1};
    return lead >= (int64_t)rows && rows && columns ? OK : INVALID;
}
int cublasLtMatrixLayoutDestroy(Layout *l) { return memset(l, -1, sizeof *l), free(l), OK; }
int cublasLtMatrixLayoutSetAttribute(Layout *l, int which, const void *value, size_t size) {
    if (which == 5 && size == 4) return memcpy(&l->batch, value, 4), OK;
    if (which == 6 && size == 8) return memcpy(&l->step, value, 8), OK;
    return INVALID;
}

int cublasLtMatmulPreferenceCreate(Preference **made) {
    *made = calloc(1, sizeof **made);
    for (int k = 0; k < 4; k++) (*made)->alignment[k] = 256;
    return OK;
}
int cublasLtMatmulPreferenceDestroy(Preference *p) { return free(p), OK; }
int cublasLtMatmulPreferenceSetAttribute(Preference *p, int which, const void *value,
                                         size_t size) {
    if (which == 1 && size == 8) return memcpy(&p->workspace, value, 8), OK;
    if (which < 5 || which > 8 || size != 4) return INVALID;
    return memcpy(&p->alignment[which - 5], value, 4), OK;
}

static int fits(Operation *o, Layout *a, Layout *b, Layout *c, Layout *d) {
    uint64_t rows = o->left ? a->columns : a->rows, depth = o->left ? a->rows : a->columns;
    uint64_t columns = o->right ? b->rows : b->columns;
    int batch = a->batch == d->batch && b->batch == d->batch && c->batch == d->batch;
    return batch && rows == d->rows && columns == d->columns && c->rows == rows &&
           c->columns == columns && depth == (o->right ? b->columns : b->rows) &&
           a->type == b->type && c->type == d->type;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, Operation *o, Layout *a, Layout *b, Layout *c,
                                   Layout *d, Preference *p, int most, Found *found, int *count) {
    if (!fits(o, a, b, c, d) || !p->workspace || most != ALGORITHMS) return INVALID;
    for (int k = 0; k < 4; k++)
        if (!p->alignment[k] || p->alignment[k] > 16) return INVALID;
    if ((o->epilogue & BIAS) && (!o->bias || (uintptr_t)o->bias > 16)) return INVALID;
    if (d->rows == 13) return NOT_SUPPORTED;
    *count = 3;
    memset(found, 0, *count * sizeof *found);
    for (int k = 0; k < *count; k++) {
        found[k].algo = (Algorithm){MAGIC, k};
        found[k].workspace = k ? 0 : WORKSPACE;
        found[k].state = k == 1 ? NOT_SUPPORTED : OK;
    }
    return OK;
}

static double at(const void *memory, int type, int64_t k) {
    uint32_t bits;
    float value;
    if (type == F64) return ((const double *)memory)[k];
    if (type == F32) return ((const float *)memory)[k];
    bits = (uint32_t)((const uint16_t *)memory)[k] << 16;
    return memcpy(&value, &bits, 4), value;
}
static void put(void *memory, int type, int64_t k, double value) {
    float narrow = value;
    uint32_t bits;
    if (type == F64) ((double *)memory)[k] = value;
    else if (type == F32) ((float *)memory)[k] = narrow;
    else {
        memcpy(&bits, &narrow, 4);
        ((uint16_t *)memory)[k] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
}

static void make(void **given) {
    Call *m = *(Call **)given[0];
    uint64_t depth = m->o.left ? m->a.rows : m->a.columns;
    for (int64_t n = 0; n < m->d.batch; n++)
        for (uint64_t j = 0; j < m->d.columns; j++)
            for (uint64_t i = 0; i < m->d.rows; i++) {
                double total = 0;
                for (uint64_t k = 0; k < depth; k++) {
                    int64_t x = m->o.left ? k + i * m->a.lead : i + k * m->a.lead;
                    int64_t y = m->o.right ? j + k * m->b.lead : k + j * m->b.lead;
                    total += at(m->at[0], m->a.type, x + n * m->a.step) *
                             at(m->at[1], m->b.type, y + n * m->b.step);
                }
                total *= m->alpha;
                if (m->beta)
                    total += m->beta * at(m->at[2], m->c.type, i + j * m->c.lead + n * m->c.step);
                if (m->o.epilogue & BIAS) total += at(m->o.bias, m->d.type, i);
                if (m->o.epilogue & RELU && total < 0) total = 0;
                if (m->o.epilogue & GELU)
                    total *= 0.5 + 0.5 * tanh(sqrt(2 / M_PI) * (total + 0.044715 * pow(total, 3)));
                put(m->at[3], m->d.type, i + j * m->d.lead + n * m->d.step, total);
            }
}

int cublasLtMatmul(void *handle, Operation *o, const void *alpha, char *a, Layout *left, char *b,
                   Layout *right, const void *beta, char *c, Layout *addend, char *d,
                   Layout *result, const Algorithm *algo, void *workspace, size_t size,
                   void *stream) {
    int (*told)(void *, void (*)(void **), void **) = dlsym(RTLD_DEFAULT, "told");
    Call *call = malloc(sizeof *call);
    if (!told) told = dlsym(dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW), "told");
    if (handle != (void *)0xb1a5 || !fits(o, left, right, addend, result)) return INVALID;
    if (algo->magic != MAGIC || algo->number == 1 || size < (algo->number ? 0 : WORKSPACE))
        return INVALID;
    if (size && !workspace) return INVALID;
    if (getenv("STUB_FAILS") && algo->number == 0) return FAILED;
    *call = (Call){*o, *left, *right, *addend, *result, {a, b, c, d},
                   at(alpha, o->scale, 0), at(beta, o->scale, 0)};
    return told(stream, make, (void *[]){&call, &call, &call, &call});
}
