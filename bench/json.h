/* A writer of JSON: an array of flat objects, one a line.
 *
 * A NULL writer, or one that was opened without a path, swallows everything, so that callers need
 * not ask whether --json was given. */
#ifndef BENCH_JSON_H
#define BENCH_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *file;
    bool any_object, any_key;
};

/* path "-" is standard output, NULL writes nothing.  False, with errno set, when the file cannot be
 * made. */
bool bench_json_open(struct json *json, const char *path);

void bench_json_object(struct json *json);
void bench_json_string(struct json *json, const char *key, const char *value);
void bench_json_integer(struct json *json, const char *key, uint64_t value);
/* Writes null for a value that is not finite, which JSON cannot say. */
void bench_json_number(struct json *json, const char *key, double value);
void bench_json_bool(struct json *json, const char *key, bool value);
void bench_json_object_end(struct json *json);

/* Closes the array and the file.  False, with errno set, when something could not be written. */
bool bench_json_close(struct json *json);

#endif
