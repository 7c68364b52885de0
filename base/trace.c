/* Marks of each thread, and the file.
 *
 *   thread 3: row -> chunk -> chunk      marks [0, count), appended by the thread alone
 *
 * A thread publishes marks by storing count; whoever writes the file reads up to it.  Rows are
 * never freed: those of ended threads stay until the file is written for the last time, and are
 * taken over when a new timeline (generation) has begun. */
#include "base/trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"

struct mark {
    uint64_t begin_ns;
    _Atomic uint64_t end_ns; /* of the last mark it may still grow */
    int rank;
    char name[TRACE_NAME];
};

struct chunk {
    struct mark marks[TRACE_CHUNK];
    struct chunk *next;
};

struct row {
    struct row *next;
    int number;
    atomic_bool owned; /* by a thread that lives */
    atomic_uint generation;
    _Atomic size_t count;
    char name[TRACE_NAME]; /* with the lock */
    struct chunk *first;
    /* The thread's own. */
    struct chunk *last;
    struct mark open[TRACE_DEPTH];
    int depth; /* may exceed TRACE_DEPTH: those are not kept */
};

atomic_bool qccl_trace_is_on;
static atomic_uint generation;
static atomic_int chunks;
static _Atomic uint64_t dropped;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct row *rows; /* all that follows with the lock */
static int row_count, communicators, file_rank = -1;
static char path[4096];
static uint64_t written; /* marks and drops in the file */
static pid_t process;    /* whose timeline it is; a fork has none */
static bool at_exit;

static pthread_key_t row_key;
static pthread_once_t row_key_once = PTHREAD_ONCE_INIT;
static _Thread_local struct row *own_row;
static _Thread_local char own_name[TRACE_NAME];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Cut, and free of what JSON would have to escape. */
static void copy_name(char *to, const char *from)
{
    size_t i = 0;
    for (; from[i] && i + 1 < TRACE_NAME; i++)
        to[i] =
            from[i] >= ' ' && from[i] <= '~' && from[i] != '"' && from[i] != '\\' ? from[i] : '_';
    to[i] = 0;
}

/* ------------------------------------------------------------------ rows */

static struct chunk *new_chunk(void)
{
    struct chunk *chunk = NULL;
    if (atomic_fetch_add(&chunks, 1) < TRACE_CHUNKS)
        chunk = qccl_alloc(1, sizeof *chunk);
    if (!chunk)
        atomic_fetch_sub(&chunks, 1);
    return chunk;
}

static void leave_row(void *row)
{
    own_row = NULL;
    atomic_store(&((struct row *)row)->owned, false);
}

static void make_row_key(void)
{
    pthread_key_create(&row_key, leave_row);
}

/* Begins a row's marks anew: by its thread, or with no thread on it. */
static void clear_row(struct row *row)
{
    row->depth = 0;
    row->last = row->first;
    atomic_store(&row->count, 0);
    atomic_store(&row->generation, atomic_load(&generation));
}

static struct row *new_row(void)
{
    struct row *row = qccl_alloc(1, sizeof *row);
    if (!row || !(row->first = new_chunk())) {
        qccl_free(row);
        return NULL;
    }
    row->number = row_count++;
    row->next = rows;
    rows = row;
    return row;
}

/* A row of an earlier timeline whose thread has ended, or a new one. */
static struct row *take_row(void)
{
    pthread_once(&row_key_once, make_row_key);
    pthread_mutex_lock(&lock);
    struct row *row = rows;
    while (row &&
           (atomic_load(&row->owned) || atomic_load(&row->generation) == atomic_load(&generation)))
        row = row->next;
    if (!row)
        row = new_row();
    if (row) {
        clear_row(row);
        atomic_store(&row->owned, true);
        copy_name(row->name, *own_name ? own_name : "caller");
        pthread_setspecific(row_key, row);
    }
    pthread_mutex_unlock(&lock);
    return row;
}

/* This thread's row; NULL when there is no memory for one. */
static struct row *row_of_thread(void)
{
    if (!own_row)
        own_row = take_row();
    else if (atomic_load(&own_row->generation) != atomic_load(&generation))
        clear_row(own_row);
    return own_row;
}

void qccl_trace_thread(const char *name)
{
    copy_name(own_name, name);
    if (!own_row)
        return;
    pthread_mutex_lock(&lock);
    memcpy(own_row->name, own_name, sizeof own_row->name);
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------ marks */

/* Where mark number `count` goes; NULL when there is no room. */
static struct mark *room_for(struct row *row, size_t count)
{
    size_t at = count % TRACE_CHUNK;
    if (at == 0 && count) {
        if (!row->last->next)
            row->last->next = new_chunk();
        if (!row->last->next)
            return NULL;
        row->last = row->last->next;
    }
    return &row->last->marks[at];
}

static void append(struct row *row, int rank, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
    size_t count = atomic_load_explicit(&row->count, memory_order_relaxed);
    struct mark *mark = room_for(row, count);
    if (!mark) {
        atomic_fetch_add(&dropped, 1);
        return;
    }
    mark->begin_ns = begin_ns;
    atomic_store_explicit(&mark->end_ns, end_ns, memory_order_relaxed);
    mark->rank = rank;
    memcpy(mark->name, name, TRACE_NAME);
    atomic_store_explicit(&row->count, count + 1, memory_order_release);
}

/* The newest mark; the thread's alone to ask for. */
static struct mark *newest(const struct row *row)
{
    size_t count = atomic_load_explicit(&row->count, memory_order_relaxed);
    return count ? &row->last->marks[(count - 1) % TRACE_CHUNK] : NULL;
}

void qccl_trace_push(int rank, const char *name)
{
    struct row *row = row_of_thread();
    if (!row)
        return;
    if (row->depth < TRACE_DEPTH) {
        struct mark *open = &row->open[row->depth];
        open->rank = rank;
        copy_name(open->name, name);
        open->begin_ns = now_ns();
    }
    row->depth++;
}

void qccl_trace_pop(int rank)
{
    struct row *row = row_of_thread();
    if (!row) {
        atomic_fetch_add(&dropped, 1);
        return;
    }
    if (!row->depth || --row->depth >= TRACE_DEPTH)
        return;
    const struct mark *open = &row->open[row->depth];
    append(row, rank, open->name, open->begin_ns, now_ns());
}

void qccl_trace_add(int rank, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
    struct row *row = row_of_thread();
    char copy[TRACE_NAME] = "";
    if (!row) {
        atomic_fetch_add(&dropped, 1);
        return;
    }
    copy_name(copy, name);
    struct mark *before = newest(row);
    if (before && before->rank == rank && strcmp(before->name, copy) == 0 &&
        atomic_load_explicit(&before->end_ns, memory_order_relaxed) == begin_ns)
        atomic_store_explicit(&before->end_ns, end_ns, memory_order_relaxed);
    else
        append(row, rank, copy, begin_ns, end_ns);
}

/* ------------------------------------------------------------------ the file */

enum { NAMED_RANKS = 1 << 16 };
static bool any_event;                    /* is in the file */
static uint8_t named[2][NAMED_RANKS / 8]; /* ranks that have their name, in the file and in a row */

static bool name_once(int which, int rank)
{
    if (rank < 0 || rank >= NAMED_RANKS)
        return false;
    uint8_t *byte = &named[which][rank / 8], bit = (uint8_t)(1u << rank % 8);
    bool first = !(*byte & bit);
    *byte |= bit;
    return first;
}

/* What stands before the next event. */
static const char *separator(void)
{
    const char *text = any_event ? ",\n" : "\n";
    any_event = true;
    return text;
}

static void write_names(FILE *file, const struct row *row, int rank)
{
    if (name_once(0, rank))
        fprintf(file,
                "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,"
                "\"args\":{\"name\":\"rank %d\"}}",
                separator(), rank, rank);
    if (name_once(1, rank))
        fprintf(file,
                "%s{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,"
                "\"args\":{\"name\":\"%s\"}}",
                separator(), rank, row->number, row->name);
}

static void write_row(FILE *file, const struct row *row, size_t count)
{
    const struct chunk *chunk = row->first;
    memset(named[1], 0, sizeof named[1]);
    for (size_t i = 0; i < count; i++) {
        if (i && i % TRACE_CHUNK == 0)
            chunk = chunk->next;
        const struct mark *m = &chunk->marks[i % TRACE_CHUNK];
        uint64_t ns = atomic_load_explicit(&m->end_ns, memory_order_relaxed) - m->begin_ns;
        write_names(file, row, m->rank);
        fprintf(file,
                "%s{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,"
                "\"ts\":%llu.%03u,\"dur\":%llu.%03u}",
                separator(), m->name, m->rank, row->number,
                (unsigned long long)(m->begin_ns / 1000), (unsigned)(m->begin_ns % 1000),
                (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
    }
}

/* Marks of a row that are there now. */
static size_t published(const struct row *row)
{
    bool current = atomic_load(&row->generation) == atomic_load(&generation);
    return current ? atomic_load_explicit(&row->count, memory_order_acquire) : 0;
}

static void write_all(FILE *file, uint64_t lost)
{
    memset(named[0], 0, sizeof named[0]);
    any_event = false;
    fprintf(file,
            "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"dropped\":%llu},\n\"traceEvents\":[",
            (unsigned long long)lost);
    for (const struct row *row = rows; row; row = row->next)
        write_row(file, row, published(row));
    fprintf(file, "\n]}\n");
}

/* out.json, or out.rankN.json. */
static void file_name(char *name, size_t capacity)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    size_t stem = dot && dot > (slash ? slash + 1 : path) ? (size_t)(dot - path) : strlen(path);
    if (file_rank < 0)
        snprintf(name, capacity, "%s", path);
    else
        snprintf(name, capacity, "%.*s.rank%d%s", (int)stem, path, file_rank, path + stem);
}

/* With the lock. */
static void write_file(void)
{
    char name[sizeof path + 32];
    uint64_t lost = atomic_load(&dropped), now = lost;
    for (const struct row *row = rows; row; row = row->next)
        now += published(row);
    if (!qccl_trace_on() || now == written || process != getpid())
        return;
    written = now;
    file_name(name, sizeof name);
    FILE *file = fopen(name, "w");
    bool failed = !file;
    if (file) {
        write_all(file, lost);
        failed = ferror(file);
        failed |= fclose(file) != 0;
    }
    if (failed)
        qccl_log(QCCL_LOG_WARN, file_rank, "QCCL_TRACE: cannot write %s: %s", name,
                 strerror(errno));
    else if (lost)
        qccl_log(QCCL_LOG_WARN, file_rank,
                 "QCCL_TRACE: %s lacks %llu marks beyond the %d that are kept", name,
                 (unsigned long long)lost, TRACE_CHUNK * TRACE_CHUNKS);
}

static void write_at_exit(void)
{
    pthread_mutex_lock(&lock);
    write_file();
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------ life */

static void begin_timeline(const char *wanted)
{
    snprintf(path, sizeof path, "%s", wanted);
    atomic_store(&dropped, 0);
    written = 0;
    process = getpid();
    file_rank = -1;
    atomic_fetch_add(&generation, 1);
    atomic_store(&qccl_trace_is_on, true);
    if (!at_exit && atexit(write_at_exit) == 0)
        at_exit = true;
}

void qccl_trace_open(void)
{
    pthread_mutex_lock(&lock);
    const char *wanted = qccl_env_text("QCCL_TRACE");
    if (communicators++ == 0) {
        if (!wanted)
            atomic_store(&qccl_trace_is_on, false);
        else if (!qccl_trace_on() || strncmp(wanted, path, sizeof path - 1) != 0)
            begin_timeline(wanted);
    }
    pthread_mutex_unlock(&lock);
}

void qccl_trace_close(void)
{
    pthread_mutex_lock(&lock);
    if (--communicators == 0)
        write_file();
    pthread_mutex_unlock(&lock);
}

void qccl_trace_rank_file(int rank)
{
    pthread_mutex_lock(&lock);
    if (file_rank < 0)
        file_rank = rank;
    pthread_mutex_unlock(&lock);
}
