/* The JSON writer; see json.h. */
#include "bench/json.h"

#include <math.h>
#include <string.h>

bool bench_json_open(struct json *json, const char *path)
{
    *json = (struct json){.file = NULL};
    if (!path)
        return true;
    json->file = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (json->file)
        fputc('[', json->file);
    return json->file != NULL;
}

static bool writes(const struct json *json)
{
    return json && json->file;
}

static void put_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static void put_key(struct json *json, const char *key)
{
    fputs(json->any_key ? ", " : "", json->file);
    put_text(json->file, key);
    fputs(": ", json->file);
    json->any_key = true;
}

void bench_json_object(struct json *json)
{
    if (!writes(json))
        return;
    fputs(json->any_object ? ",\n {" : "\n {", json->file);
    json->any_object = true;
    json->any_key = false;
}

void bench_json_string(struct json *json, const char *key, const char *value)
{
    if (!writes(json))
        return;
    put_key(json, key);
    put_text(json->file, value);
}

void bench_json_integer(struct json *json, const char *key, uint64_t value)
{
    if (!writes(json))
        return;
    put_key(json, key);
    fprintf(json->file, "%llu", (unsigned long long)value);
}

void bench_json_number(struct json *json, const char *key, double value)
{
    if (!writes(json))
        return;
    put_key(json, key);
    if (isfinite(value))
        fprintf(json->file, "%.9g", value);
    else
        fputs("null", json->file);
}

void bench_json_bool(struct json *json, const char *key, bool value)
{
    if (!writes(json))
        return;
    put_key(json, key);
    fputs(value ? "true" : "false", json->file);
}

void bench_json_object_end(struct json *json)
{
    if (!writes(json))
        return;
    fputc('}', json->file);
    fflush(json->file);
}

bool bench_json_close(struct json *json)
{
    if (!writes(json))
        return true;
    fputs("\n]\n", json->file);
    bool good = !ferror(json->file);
    if (json->file == stdout)
        good = fflush(stdout) == 0 && good;
    else
        good = fclose(json->file) == 0 && good;
    json->file = NULL;
    return good;
}
