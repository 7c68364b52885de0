/* Threads that mark, end and begin while the timeline is written, under the thread sanitizer and
 * valgrind: every mark is in the file, whole, whoever wrote the file meanwhile. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/trace.h"
#include "tests/tap.h"

enum { THREADS = 4, GENERATIONS = 3, MARKS = 3 * TRACE_CHUNK };

static atomic_bool stop;

static void *mark_often(void *arg)
{
    int rank = *(const int *)arg;
    char name[TRACE_NAME];
    snprintf(name, sizeof name, "worker %d", rank);
    qccl_trace_thread(name);
    for (int i = 0; i < MARKS; i += 3) {
        qccl_trace_begin(rank, "outer");
        qccl_trace_begin(rank, "inner");
        qccl_trace_end(rank);
        qccl_trace_span(rank, "span", (uint64_t)i, (uint64_t)i + 1);
        qccl_trace_end(rank);
    }
    return NULL;
}

/* Each round the last communicator goes, so each round the file is written. */
static void *write_often(void *arg)
{
    while (!atomic_load(&stop)) {
        qccl_trace_open();
        qccl_trace_close();
    }
    return arg;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    int ranks[THREADS];
    for (int i = 0; i < THREADS; i++) {
        ranks[i] = i;
        pthread_create(&threads[i], NULL, mark_often, &ranks[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* Lines of the file that hold text. */
static int lines_with(const char *path, const char *text)
{
    char line[400];
    int count = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        count += strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return count;
}

static void run_timeline(const char *path)
{
    pthread_t writer;
    setenv("QCCL_TRACE", path, 1);
    qccl_trace_open();
    qccl_trace_close();
    atomic_store(&stop, false);
    pthread_create(&writer, NULL, write_often, NULL);
    run_threads();
    atomic_store(&stop, true);
    pthread_join(writer, NULL);
    qccl_trace_open();
    qccl_trace_close();
}

int main(void)
{
    char folder[] = "/tmp/qccl-trace-XXXXXX", path[2][64];
    if (!mkdtemp(folder))
        return EXIT_FAILURE;
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/%d.json", folder, i);
    for (int i = 0; i < GENERATIONS; i++) { /* another path is another timeline */
        const char *now = path[i % 2];
        run_timeline(now);
        int marks = lines_with(now, "\"ph\":\"X\""), rows = lines_with(now, "\"thread_name\"");
        tap_ok(marks == THREADS * MARKS, "timeline %d has %d of %d marks", i, marks,
               THREADS * MARKS);
        tap_ok(rows == THREADS, "timeline %d has the rows of %d threads, which have ended", i,
               rows);
        tap_ok(lines_with(now, "\"dropped\":0}") == 1, "timeline %d lacks nothing", i);
    }
    for (int i = 0; i < 2; i++)
        unlink(path[i]);
    rmdir(folder);
    return tap_end();
}
