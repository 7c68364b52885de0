/* The log that QCCL_DEBUG=WARN|INFO|TRACE asks for, on stderr, one line a message, in the form of
 * NCCL's. */
#ifndef QCCL_BASE_LOG_H
#define QCCL_BASE_LOG_H

enum qccl_log_level { QCCL_LOG_NONE, QCCL_LOG_WARN, QCCL_LOG_INFO, QCCL_LOG_TRACE };

/* Whether messages of a level are wanted; cheap, so that a caller can skip making its arguments. */
int qccl_log_wants(enum qccl_log_level level);

/* rank < 0: the message belongs to no rank. */
void qccl_log(enum qccl_log_level level, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
