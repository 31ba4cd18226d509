/* A libcuda.so.1 of two GPUs whose memory is the host's and whose streams do everything at once.

   It stands behind the real cuda.bindings, so that what these make of our arguments is seen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *Handle;
typedef unsigned long long Address;
typedef void (*Kernel)(void **);
enum { OUT_OF_MEMORY = 2, NO_CONTEXT = 201, WORDS = 4, MOST = 64 };
#define NEED_CONTEXT if (!context) return NO_CONTEXT

static __thread Handle contexts[MOST], context;
static __thread int pushed;
static intptr_t handles = 0x1000;

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 2, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, 0; }
int cuDeviceGetName(char *name, int size, int device) { return strcpy(name, "Stub"), 0; }
int cuDeviceGetAttribute(int *value, int which, int device) {
    return *value = which == 75 ? 9 : 0, 0;
}
int cuDevicePrimaryCtxRetain(Handle *made, int device) {
    return *made = (Handle)(intptr_t)(1 + device), 0;
}
int cuCtxSetCurrent(Handle given) { return context = given, 0; }
int cuCtxPushCurrent_v2(Handle given) {
    return contexts[pushed++] = context, context = given, 0;
}
int cuCtxPopCurrent_v2(Handle *given) {
    return *given = context, context = contexts[--pushed], 0;
}
int cuMemFree_v2(Address place) { NEED_CONTEXT; return free((void *)place), 0; }
int cuMemFreeHost(void *place) { return free(place), 0; }
int cuDeviceCanAccessPeer(int *can, int device, int other) { return *can = 1, 0; }
int cuCtxEnablePeerAccess(Handle other, unsigned flags) { return flags || other == context; }
int cuStreamCreate(Handle *made, unsigned flags) { return *made = (Handle)handles++, flags != 1; }
int cuStreamSynchronize(Handle stream) { return 0; }
int cuStreamWaitEvent(Handle stream, Handle event, unsigned flags) { return 0; }
int cuEventCreate(Handle *made, unsigned flags) { return *made = (Handle)handles++, 0; }
int cuEventDestroy_v2(Handle event) { return 0; }
int cuEventRecord(Handle event, Handle stream) { return 0; }
int cuEventSynchronize(Handle event) { return 0; }
int cuEventElapsedTime(float *time, Handle first, Handle second) { return *time = 1, 0; }
int cuEventElapsedTime_v2(float *time, Handle first, Handle second) { return *time = 1, 0; }
int cuLaunchHostFunc(Handle stream, void (*function)(void *), void *data) {
    return function(data), 0;
}

int cuMemAlloc_v2(Address *place, size_t size) {
    NEED_CONTEXT;
    return posix_memalign((void **)place, 256, size) ? OUT_OF_MEMORY : 0;
}
int cuMemHostAlloc(void **place, size_t size, unsigned flags) {
    return posix_memalign(place, 256, size) || flags != 1 ? OUT_OF_MEMORY : 0;
}
/* Four floats: y = 2 x, and y = x + 1. */
static void twice(void **given) {
    float *x = *(float **)given[0], *y = *(float **)given[1];
    for (int i = 0; i < 4; i++) y[i] = 2 * x[i];
}
static void increment(void **given) {
    float *x = *(float **)given[0], *y = *(float **)given[1];
    for (int i = 0; i < 4; i++) y[i] = x[i] + 1;
}
static void less(void **given) {
    *(*(char **)given[1]) = **(float **)given[0] < *(long long *)given[2];
}
static void none(void **given) {}
static void copy(void **given) {
    memmove(*(void **)given[0], *(void **)given[1], *(size_t *)given[2]);
}
static void set(void **given) { memset(*(void **)given[0], *(int *)given[1], *(size_t *)given[2]); }

/* Sets the condition of a handle from the byte of a verdict. */
static int conditions[MOST], conditioned;
static void decide(void **given) { conditions[*(uint64_t *)given[0]] = **(char **)given[1]; }

int cuModuleLoadData(Handle *made, const char *image) {
    *made = (Handle)handles++;
    return strcmp(image, "cubin sm_90") && !strstr(image, ".entry decide") ? 209 : 0;
}
int cuModuleGetFunction(Handle *made, Handle module, const char *name) {
    *made = !strcmp(name, "double") ? twice : !strcmp(name, "increment") ? increment
          : !strcmp(name, "less") ? less : !strcmp(name, "decide") ? decide : none;
    return 0;
}

/* What streams do: kernels with the words they are given, now or as a graph. */
typedef struct { int count; Kernel kernels[MOST]; uint64_t words[MOST][WORDS]; } Graph;
static _Thread_local Graph *recorded;
static _Thread_local Handle recording;

int told(Handle stream, Kernel kernel, void **given) {
    NEED_CONTEXT;
    if (!recorded || stream != recording) return kernel(given), 0;
    recorded->kernels[recorded->count] = kernel;
    for (int i = 0; i < WORDS; i++) recorded->words[recorded->count][i] = *(uint64_t *)given[i];
    return recorded->count++, 0;
}
int cuFuncSetAttribute(Kernel kernel, int attribute, int value) { return attribute != 8; }
int cuLaunchKernel(Kernel kernel, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty,
                   unsigned tz, unsigned shared, Handle stream, void **given, void **extra) {
    if (!x || !tx || y * z * ty * tz != 1 || shared > 232448 || extra) return 1;
    return told(stream, kernel, given);
}
int cuMemcpyAsync_v2(Address target, Address source, size_t size, Handle stream) {
    return told(stream, copy, (void *[]){&target, &source, &size, &size});
}
int cuMemsetD8Async(Address target, unsigned char byte, size_t size, Handle stream) {
    uint64_t word = byte;
    return told(stream, set, (void *[]){&target, &word, &size, &size});
}
int cuGraphCreate(Graph **made, unsigned flags) { return *made = calloc(1, sizeof(Graph)), flags; }
/* A node is known by its number, from 1, and follows the one before. */
static int follows(Graph *graph, const Handle *before, size_t count) {
    return graph->count ? count == 1 && before[0] == (Handle)(intptr_t)graph->count : !count;
}
int cuStreamBeginCaptureToGraph(Handle stream, Graph *graph, const Handle *before, const void *edges,
                                size_t count, int mode) {
    recorded = graph, recording = stream;
    return mode != 2 || !follows(graph, before, count);
}
int cuStreamGetCaptureInfo(Handle stream, int *status, uint64_t *id, Handle *graph,
                           const Handle **before, const void **edges, size_t *count) {
    static Handle last;
    static const char edge[64];
    last = (Handle)(intptr_t)recorded->count;
    *status = 1, *graph = recorded, *count = 1, *before = &last;
    if (edges) *edges = edge;
    return stream != recording;
}
int cuStreamEndCapture(Handle stream, Handle *graph) { return *graph = recorded, recorded = 0, 0; }

int cuGraphConditionalHandleCreate(uint64_t *made, Graph *graph, Handle given, unsigned value,
                                   unsigned flags) {
    return *made = conditioned++, value || flags || given != context;
}
typedef struct {
    int type, reserved[3];
    uint64_t handle;
    int kind;
    unsigned size;
    Graph **bodies;
    Handle context;
} Node;
static void run(Graph *graph) {
    for (int k = 0; k < graph->count; k++) {
        void *given[WORDS];
        for (int i = 0; i < WORDS; i++) given[i] = &graph->words[k][i];
        graph->kernels[k](given);
    }
}
static void conditional(void **given) {
    int *condition = &conditions[*(uint64_t *)given[0]];
    Graph **bodies = *(Graph ***)given[1];
    if (*(uint64_t *)given[2] == 1) while (*condition) run(bodies[0]);
    else run(bodies[!*condition]);
}
int cuGraphAddNode(Handle *made, Graph *graph, const Handle *before, const void *edges, size_t count,
                   Node *node) {
    if (node->type != 13 || node->context != context || !follows(graph, before, count)) return 1;
    if (node->kind > 1 || node->size != (node->kind ? 1 : 2)) return 1;
    node->bodies = calloc(node->size, sizeof(Graph *));
    for (unsigned k = 0; k < node->size; k++) cuGraphCreate(&node->bodies[k], 0);
    uint64_t words[] = {node->handle, (uint64_t)node->bodies, node->kind, 0};
    graph->kernels[graph->count] = conditional;
    memcpy(graph->words[graph->count++], words, sizeof words);
    return *made = (Handle)(intptr_t)graph->count, 0;
}
int cuGraphInstantiateWithFlags(Handle *made, Handle graph, unsigned long long flags) {
    return *made = graph, 0;
}
int cuGraphDestroy(Handle graph) { return 0; }
int cuGraphExecDestroy(Handle graph) { return free(graph), 0; }
int cuGraphLaunch(Graph *graph, Handle stream) {
    run(graph);
    return printf("graph of %d\n", graph->count), fflush(stdout), 0;
}

int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    static const char *endings[] = {"", "_v2", "WithFlags"};
    void *self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
    char whole[128];
    *found = NULL;
    for (int i = 0; i < 3 && !*found; i++) {
        snprintf(whole, sizeof whole, "%s%s", name, endings[i]);
        *found = dlsym(self, whole);
    }
    if (status) *status = !*found;
    return 0;
}
