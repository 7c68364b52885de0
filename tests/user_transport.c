/* qcclCommInitTransport over a mover of the test's own: queues of copied bytes behind one lock, in
 * which messages can be damaged, counted or lost on purpose. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "tests/harness.h"

enum { RANKS = 3, COUNT = 2500 };

struct parcel {
    size_t bytes;
    struct parcel *next;
    unsigned char data[];
};

struct errand {
    void *to;
    size_t bytes;
    int peer;
    uint64_t number; /* of the operation */
    struct errand *next;
};

struct post;
struct office { /* one rank's end */
    struct post *post;
    int rank;
    struct errand *first, **end;
    uint64_t started, most; /* operations since the last wait, and the most of them ever */
};

struct post {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct parcel *queue[RANKS][RANKS]; /* [from][to] */
    bool closed[RANKS], gave_up;
    struct office office[RANKS];
    int closes, aborts;
    size_t sent_bytes[RANKS];
    size_t damage_at; /* 0: nowhere; else this byte of the first message from rank 0 of the next
                         data call */
    int damage_skip;  /* messages of rank 0 that pass first */
};

static qcclResult_t post_isend(void *context, const void *buffer, size_t bytes, int peer)
{
    struct office *o = context;
    struct post *p = o->post;
    struct parcel *made = malloc(sizeof *made + bytes);
    if (!made)
        return qcclOutOfMemory;
    o->started++;
    *made = (struct parcel){.bytes = bytes};
    memcpy(made->data, buffer, bytes);
    pthread_mutex_lock(&p->lock);
    if (o->rank == 0 && p->damage_at && bytes > p->damage_at && p->damage_skip-- == 0)
        made->data[p->damage_at] ^= 0x20;
    struct parcel **end = &p->queue[o->rank][peer];
    while (*end)
        end = &(*end)->next;
    *end = made;
    p->sent_bytes[o->rank] += bytes;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return qcclSuccess;
}

static qcclResult_t post_irecv(void *context, void *buffer, size_t bytes, int peer)
{
    struct office *o = context;
    struct errand *e = malloc(sizeof *e);
    if (!e)
        return qcclOutOfMemory;
    *e = (struct errand){.to = buffer, .bytes = bytes, .peer = peer, .number = o->started++};
    *o->end = e;
    o->end = &e->next;
    return qcclSuccess;
}

/* Takes one parcel, waiting for it; called with the lock held. */
static qcclResult_t fetch(struct office *o, const struct errand *e, const struct timespec *deadline,
                          bool forever)
{
    struct post *p = o->post;
    struct parcel **queue = &p->queue[e->peer][o->rank];
    while (!*queue) {
        if (p->gave_up || p->closed[e->peer])
            return qcclRemoteError;
        if (forever)
            pthread_cond_wait(&p->changed, &p->lock);
        else if (pthread_cond_timedwait(&p->changed, &p->lock, deadline) != 0)
            return qcclRemoteError;
    }
    struct parcel *taken = *queue;
    *queue = taken->next;
    qcclResult_t result = taken->bytes == e->bytes ? qcclSuccess : qcclMismatch;
    if (result == qcclSuccess)
        memcpy(e->to, taken->data, e->bytes);
    free(taken);
    return result;
}

static struct timespec deadline_after(double timeout)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += timeout < 0 ? 0 : (time_t)timeout;
    return deadline;
}

static qcclResult_t post_wait(void *context, double timeout)
{
    struct office *o = context;
    struct timespec deadline = deadline_after(timeout);
    qcclResult_t result = qcclSuccess;
    o->most = o->started > o->most ? o->started : o->most;
    o->started = 0;
    pthread_mutex_lock(&o->post->lock);
    while (o->first) {
        struct errand *e = o->first;
        if (result == qcclSuccess)
            result = fetch(o, e, &deadline, timeout < 0);
        o->first = e->next;
        free(e);
    }
    o->end = &o->first;
    pthread_mutex_unlock(&o->post->lock);
    return result;
}

/* The errand of this number or the oldest one to its peer, which is before it; NULL: it is done. */
static struct errand **next_for(struct office *o, uint64_t number)
{
    struct errand **of = &o->first, **at = &o->first;
    while (*of && (*of)->number != number)
        of = &(*of)->next;
    while (*of && (*at)->peer != (*of)->peer)
        at = &(*at)->next;
    return *of ? at : NULL;
}

static void unlink_errand(struct office *o, struct errand **at)
{
    struct errand *done = *at;
    *at = done->next;
    if (!*at)
        o->end = at;
    free(done);
}

/* Leaves what other peers are to send where it is, so operations complete out of order. */
static qcclResult_t post_wait_for(void *context, uint64_t number, double timeout)
{
    struct office *o = context;
    struct timespec deadline = deadline_after(timeout);
    qcclResult_t result = qcclSuccess;
    struct errand **at;
    pthread_mutex_lock(&o->post->lock);
    while (result == qcclSuccess && (at = next_for(o, number))) {
        result = fetch(o, *at, &deadline, timeout < 0);
        unlink_errand(o, at);
    }
    pthread_mutex_unlock(&o->post->lock);
    return result;
}

static qcclResult_t post_test(void *context, uint64_t number, int *done)
{
    struct office *o = context;
    qcclResult_t result = qcclSuccess;
    struct errand **at;
    pthread_mutex_lock(&o->post->lock);
    while (result == qcclSuccess && (at = next_for(o, number)) &&
           o->post->queue[(*at)->peer][o->rank]) {
        result = fetch(o, *at, NULL, true);
        unlink_errand(o, at);
    }
    *done = next_for(o, number) == NULL;
    pthread_mutex_unlock(&o->post->lock);
    return result;
}

static void post_abort(void *context)
{
    struct office *o = context;
    pthread_mutex_lock(&o->post->lock);
    o->post->gave_up = true;
    o->post->aborts++;
    pthread_cond_broadcast(&o->post->changed);
    pthread_mutex_unlock(&o->post->lock);
}

static void post_close(void *context)
{
    struct office *o = context;
    pthread_mutex_lock(&o->post->lock);
    o->post->closed[o->rank] = true;
    o->post->closes++;
    pthread_cond_broadcast(&o->post->changed);
    pthread_mutex_unlock(&o->post->lock);
}

static void post_open(struct post *p)
{
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    for (int r = 0; r < RANKS; r++) {
        p->office[r] = (struct office){.post = p, .rank = r};
        p->office[r].end = &p->office[r].first;
    }
}

static void post_free(struct post *p)
{
    for (int a = 0; a < RANKS; a++)
        for (int b = 0; b < RANKS; b++)
            while (p->queue[a][b]) {
                struct parcel *next = p->queue[a][b]->next;
                free(p->queue[a][b]);
                p->queue[a][b] = next;
            }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}

/* ------------------------------------------------------------------ making communicators */

struct making {
    struct post post;
    qcclConfig_t config[RANKS];
    size_t struct_size;
    bool numbered; /* with wait_for and test */
    int nodes[RANKS][RANKS];
};

static qcclResult_t init_rank(struct team *team, int rank, void *arg)
{
    struct making *m = arg;
    qcclTransport_t transport = {.size = m->struct_size,
                                 .context = &m->post.office[rank],
                                 .rank = rank,
                                 .nranks = RANKS,
                                 .isend = post_isend,
                                 .irecv = post_irecv,
                                 .wait = post_wait,
                                 .abort = post_abort,
                                 .close = post_close,
                                 .wait_for = m->numbered ? post_wait_for : NULL,
                                 .test = m->numbered ? post_test : NULL};
    return qcclCommInitTransport(&team->comm[rank], &transport, &m->config[rank]);
}

static void making_open(struct making *m, struct team *team)
{
    memset(team, 0, sizeof *team);
    team->nranks = RANKS;
    memset(m, 0, sizeof *m);
    post_open(&m->post);
    m->struct_size = sizeof(qcclTransport_t);
    for (int r = 0; r < RANKS; r++) {
        m->config[r] = (qcclConfig_t)QCCL_CONFIG_INITIALIZER;
        m->config[r].policy = "int4; min=0";
        m->config[r].timeout = 20;
    }
}

/* Communicators with one configuration. */
static void open_team(struct making *m, struct team *team, const char *policy, bool numbered)
{
    making_open(m, team);
    m->numbered = numbered;
    for (int r = 0; r < RANKS; r++)
        m->config[r].policy = policy;
    cr_assert(team_run(team, init_rank, m), "%s", team_report(team));
}

static void close_team(struct making *m, struct team *team)
{
    team_close(team);
    post_free(&m->post);
}

static void expect_bits_of_threads(bool numbered)
{
    static const char *const policies[] = {"int4; min=0", "int8:hadamard=32 gather=sr1; min=0",
                                           "none"};
    for (size_t p = 0; p < 3; p++)
        for (int c = 0; c < qcclNumColls; c++) {
            struct making m;
            struct team team;
            char message[2000] = "";
            size_t bytes, again;
            struct call call = {.collective = (qcclColl_t)c,
                                .count = COUNT,
                                .type = qcclFloat32,
                                .pattern = INPUT_SPECIAL};
            struct setup setup = {.nranks = RANKS, .policy = policies[p], .sequence = 3};
            open_team(&m, &team, policies[p], numbered);
            void *result = team_call(&team, &call, 3, &bytes, message, sizeof message);
            void *expected = run_once(&setup, &call, &again, message, sizeof message);
            cr_assert(result && expected, "%s", message);
            cr_expect(bytes == again && memcmp(result, expected, bytes) == 0, "%s, collective %d",
                      policies[p], c);
            /* A phase of a round sends a message to each peer and receives one.  What is not
             * compressed goes in one round. */
            uint64_t phases = c == qcclCollAllReduce ? 2 : 1;
            bool several = m.post.office[0].most > phases * 2 * (RANKS - 1);
            cr_expect_eq(several, numbered && p < 2, "%s, collective %d: %llu operations",
                         policies[p], c, (unsigned long long)m.post.office[0].most);
            free(result);
            free(expected);
            close_team(&m, &team);
            cr_expect_eq(m.post.closes, RANKS);
            cr_expect_eq(qccl_memory_live(), 0);
        }
}

Test(user_transport, it_gives_the_bits_that_the_thread_transport_gives)
{
    expect_bits_of_threads(false);
}

Test(user_transport, whose_operations_complete_one_by_one_has_several_rounds_in_flight)
{
    setenv("QCCL_CHUNK", "128", 1);
    expect_bits_of_threads(true);
}

Test(user_transport, the_wire_bytes_of_the_statistics_are_those_the_mover_sees)
{
    struct making m;
    struct team team;
    struct trial trial;
    struct call call = {.count = 1000000, .type = qcclFloat32};
    open_team(&m, &team, "int4; min=0", false);
    size_t before[RANKS];
    memcpy(before, m.post.sent_bytes, sizeof before);
    cr_assert(trial_open(&trial, RANKS, &call) && trial_run(&trial, &team), "%s",
              team_report(&team));
    for (int r = 0; r < RANKS; r++) {
        qcclStats_t stats = {.size = sizeof stats};
        cr_assert_eq(qcclCommGetStats(team.comm[r], &stats), qcclSuccess);
        cr_expect_eq(stats.wire_bytes, m.post.sent_bytes[r] - before[r], "rank %d", r);
        cr_expect_gt((double)stats.raw_bytes / (double)stats.wire_bytes, 7.5);
    }
    trial_close(&trial);
    close_team(&m, &team);
}

/* ------------------------------------------------------------------ configurations that differ */

static void expect_init_mismatch(struct making *m, struct team *team, const char *a, const char *b)
{
    team_run(team, init_rank, m);
    cr_expect(team_all(team, qcclMismatch), "%s", team_report(team));
    cr_expect(team_all_say(team, a) && team_all_say(team, b), "\"%s\" and \"%s\" in %s", a, b,
              team_report(team));
    for (int r = 0; r < RANKS; r++)
        cr_expect_null(team->comm[r]);
    cr_expect_eq(m->post.closes, 0, "a failed init must leave the transport to its owner");
    post_free(&m->post);
    cr_expect_eq(qccl_memory_live(), 0);
}

Test(user_transport, configurations_that_differ_are_an_error_on_every_rank_that_names_both_values)
{
    struct making m;
    struct team team;
    for (int odd = 0; odd < RANKS; odd++) {
        making_open(&m, &team);
        m.config[odd].policy = "int8; min=0";
        expect_init_mismatch(&m, &team, "int4:group=128", "int8:group=128");
        making_open(&m, &team);
        m.config[odd].seed = 99;
        expect_init_mismatch(&m, &team, "seed=0", "seed=99");
        making_open(&m, &team);
        for (int r = 0; r < RANKS; r++) {
            m.nodes[r][1] = r == odd;
            m.config[r].nodes = m.nodes[r];
        }
        expect_init_mismatch(&m, &team, "nodes=0,0,0", "nodes=0,1,0");
    }
}

Test(user_transport, a_configuration_that_is_wrong_on_one_rank_is_an_error_on_every_rank)
{
    struct making m;
    struct team team;
    for (int odd = 0; odd < RANKS; odd++) {
        making_open(&m, &team);
        m.config[odd].policy = "int4:group=77";
        team_run(&team, init_rank, &m);
        for (int r = 0; r < RANKS; r++) {
            cr_expect_eq(team.result[r], r == odd ? qcclInvalidArgument : qcclMismatch, "%s",
                         team_report(&team));
            cr_expect(strstr(team.sentence[r], "group=77"), "%s", team.sentence[r]);
            cr_expect_null(team.comm[r]);
        }
        post_free(&m.post);
    }
}

Test(user_transport, a_transport_that_has_one_of_wait_for_and_test_is_refused)
{
    struct post post;
    post_open(&post);
    qcclTransport_t bad = {.size = sizeof bad,
                           .context = &post.office[0],
                           .nranks = 1,
                           .isend = post_isend,
                           .irecv = post_irecv,
                           .wait = post_wait,
                           .wait_for = post_wait_for};
    qcclComm_t comm = NULL;
    cr_expect_eq(qcclCommInitTransport(&comm, &bad, NULL), qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "test is NULL"), "%s", qcclGetLastError());
    bad.wait_for = NULL;
    bad.test = post_test;
    cr_expect_eq(qcclCommInitTransport(&comm, &bad, NULL), qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "wait_for is NULL"), "%s", qcclGetLastError());
    cr_expect_null(comm);
    bad.wait_for = post_wait_for;
    cr_expect_eq(qcclCommInitTransport(&comm, &bad, NULL), qcclSuccess, "%s", qcclGetLastError());
    cr_expect_eq(qcclCommDestroy(comm), qcclSuccess);
    post_free(&post);
}

Test(user_transport, a_transport_that_is_incomplete_is_refused)
{
    struct post post;
    post_open(&post);
    qcclTransport_t good = {.size = sizeof good,
                            .context = &post.office[0],
                            .nranks = RANKS,
                            .isend = post_isend,
                            .irecv = post_irecv,
                            .wait = post_wait};
    qcclComm_t comm = NULL;
    cr_expect_eq(qcclCommInitTransport(NULL, &good, NULL), qcclInvalidArgument);
    cr_expect_eq(qcclCommInitTransport(&comm, NULL, NULL), qcclInvalidArgument);
    qcclTransport_t bad = good;
    bad.size--;
    cr_expect_eq(qcclCommInitTransport(&comm, &bad, NULL), qcclInvalidArgument);
    bad = good;
    bad.wait = NULL;
    cr_expect_eq(qcclCommInitTransport(&comm, &bad, NULL), qcclInvalidArgument);
    bad = good;
    bad.rank = RANKS;
    cr_expect_eq(qcclCommInitTransport(&comm, &bad, NULL), qcclInvalidArgument);
    cr_expect_null(comm);
    bad = good;
    bad.nranks = 1; /* alone, and with neither abort nor close */
    cr_expect_eq(qcclCommInitTransport(&comm, &bad, NULL), qcclSuccess, "%s", qcclGetLastError());
    cr_expect_eq(qcclCommAbort(comm), qcclSuccess);
    cr_expect_eq(qcclCommDestroy(comm), qcclSuccess);
    post_free(&post);
}

/* ------------------------------------------------------------------ damage on the way */

/* skip: data messages that pass first. */
static void check_damage(const char *check, size_t at, int skip)
{
    struct making m;
    struct team team;
    struct trial trial;
    struct call call = {.count = COUNT, .type = qcclFloat32};
    setenv("QCCL_CHECK", check, 1);
    open_team(&m, &team, "int4; min=0", skip > 0);
    m.post.damage_at = at;
    m.post.damage_skip =
        skip + (*check == '1' ? RANKS - 1 : 0); /* the records of the check go first */
    cr_assert(trial_open(&trial, RANKS, &call));
    trial_run(&trial, &team);
    int corrupt = 0;
    for (int r = 0; r < RANKS; r++) {
        cr_expect(team.result[r] == qcclCorruptMessage || team.result[r] == qcclRemoteError,
                  "byte %zu: %s", at, team_report(&team));
        corrupt +=
            team.result[r] == qcclCorruptMessage && strstr(team.sentence[r], "from rank 0") != NULL;
    }
    cr_expect_eq(corrupt, 1, "byte %zu: %s", at, team_report(&team));
    cr_expect(trial_guards_hold(&trial));
    cr_expect_geq(m.post.aborts, 1);
    trial_close(&trial);
    close_team(&m, &team);
    cr_expect_eq(qccl_memory_live(), 0);
}

Test(user_transport, a_damaged_header_is_found_and_ends_the_call_on_every_rank)
{
    for (size_t at = 1; at < 64; at += 3)
        check_damage("0", at, 0);
}

Test(user_transport, a_damaged_payload_is_found_when_calls_are_checked)
{
    for (size_t at = 64; at < 300; at += 37)
        check_damage("1", at, 0);
}

Test(user_transport, damage_is_found_with_rounds_in_flight)
{
    setenv("QCCL_CHUNK", "128", 1);
    for (int skip = 1; skip < 20; skip++)
        check_damage(skip % 2 ? "1" : "0", skip % 2 ? 70 : 5, skip);
}
