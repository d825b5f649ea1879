/* LevelDB's work for table 3: db_bench's rows, by LevelDB's C interface. leveldb DIR OPERATIONS;
   prints a line for each row: its name, and microseconds of an operation. The interface is declared
   here because a system has the library more often than its headers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct leveldb_t leveldb_t;
typedef struct leveldb_cache_t leveldb_cache_t;
typedef struct leveldb_iterator_t leveldb_iterator_t;
typedef struct leveldb_options_t leveldb_options_t;
typedef struct leveldb_readoptions_t leveldb_readoptions_t;
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;
leveldb_t *leveldb_open(const leveldb_options_t *, const char *, char **);
void leveldb_close(leveldb_t *);
void leveldb_destroy_db(const leveldb_options_t *, const char *, char **);
void leveldb_put(leveldb_t *, const leveldb_writeoptions_t *, const char *, size_t, const char *, size_t, char **);
void leveldb_delete(leveldb_t *, const leveldb_writeoptions_t *, const char *, size_t, char **);
char *leveldb_get(leveldb_t *, const leveldb_readoptions_t *, const char *, size_t, size_t *, char **);
leveldb_iterator_t *leveldb_create_iterator(leveldb_t *, const leveldb_readoptions_t *);
void leveldb_iter_destroy(leveldb_iterator_t *);
unsigned char leveldb_iter_valid(const leveldb_iterator_t *);
void leveldb_iter_seek_to_first(leveldb_iterator_t *);
void leveldb_iter_next(leveldb_iterator_t *);
const char *leveldb_iter_value(const leveldb_iterator_t *, size_t *);
leveldb_options_t *leveldb_options_create(void);
void leveldb_options_set_cache(leveldb_options_t *, leveldb_cache_t *);
void leveldb_options_set_compression(leveldb_options_t *, int);
void leveldb_options_set_create_if_missing(leveldb_options_t *, unsigned char);
leveldb_cache_t *leveldb_cache_create_lru(size_t);
leveldb_readoptions_t *leveldb_readoptions_create(void);
leveldb_writeoptions_t *leveldb_writeoptions_create(void);
void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *, unsigned char);
void leveldb_free(void *);

enum { KEY = 16, VALUE = 1024, VALUES = 1 << 20, CACHE = 8 << 20 };

static char values[VALUES];
static const char *dir;
static leveldb_t *db;
static leveldb_options_t *options;
static leveldb_readoptions_t *reads;
static leveldb_writeoptions_t *writes;
static uint64_t drawn = 301;

static uint64_t next(void)
{
    uint64_t z = drawn += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static void fine(const char *what, char *error)
{
    if (error) {
        fprintf(stderr, "%s: %s\n", what, error);
        exit(1);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

/* As db_bench: rows that fill begin with a database of their own. */
static void anew(void)
{
    char *error = NULL;
    if (db)
        leveldb_close(db);
    leveldb_destroy_db(options, dir, &error);
    fine("destroy", error);
    db = leveldb_open(options, dir, &error);
    fine("open", error);
}

static void put(uint64_t key)
{
    char name[32], *error = NULL;
    snprintf(name, sizeof name, "%016llu", (unsigned long long)key);
    leveldb_put(db, writes, name, KEY, values + next() % (VALUES - VALUE), VALUE, &error);
    fine("put", error);
}

static void removed(uint64_t key)
{
    char name[32], *error = NULL;
    snprintf(name, sizeof name, "%016llu", (unsigned long long)key);
    leveldb_delete(db, writes, name, KEY, &error);
    fine("delete", error);
}

static int got(uint64_t key)
{
    char name[32], *error = NULL, *value;
    size_t len = 0;
    snprintf(name, sizeof name, "%016llu", (unsigned long long)key);
    value = leveldb_get(db, reads, name, KEY, &len, &error);
    fine("get", error);
    leveldb_free(value);
    return len == VALUE;
}

static uint64_t all_read(void)
{
    leveldb_iterator_t *at = leveldb_create_iterator(db, reads);
    uint64_t count = 0;
    size_t len;
    for (leveldb_iter_seek_to_first(at); leveldb_iter_valid(at); leveldb_iter_next(at)) {
        leveldb_iter_value(at, &len);
        count += len == VALUE;
    }
    leveldb_iter_destroy(at);
    return count;
}

static void say(const char *row, double begun, uint64_t count)
{
    printf("%s %f\n", row, (now() - begun) / (count ? count : 1));
    fflush(stdout);
}

static void fill(uint64_t count)
{
    double begun;
    uint64_t at, synced = count / 20 ? count / 20 : 1;
    anew();
    leveldb_writeoptions_set_sync(writes, 1);
    for (begun = now(), at = 0; at < synced; at++)
        put(next() % count);
    say("fillsync", begun, synced);
    leveldb_writeoptions_set_sync(writes, 0);
    anew();
    for (begun = now(), at = 0; at < count; at++)
        put(at);
    say("fillseq", begun, count);
    anew();
    for (begun = now(), at = 0; at < count; at++)
        put(next() % count);
    say("fillrandom", begun, count);
    for (begun = now(), at = 0; at < count; at++)
        put(next() % count);
    say("overwrite", begun, count);
}

static void rest(uint64_t count)
{
    double begun = now();
    uint64_t at, found = all_read(), hot = (count + 99) / 100, hits = 0;
    say("readseq", begun, found);
    for (begun = now(), at = 0; at < count; at++)
        hits += got(next() % count);
    say("readrandom", begun, count);
    for (begun = now(), at = 0; at < count; at++)
        hits += got(next() % hot);
    say("readhot", begun, count);
    for (begun = now(), at = 0; at < count; at++)
        removed(next() % count);
    say("deleterandom", begun, count);
    if (!found || !hits) {
        fprintf(stderr, "nothing was found\n");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    uint64_t count = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    if (!count) {
        fprintf(stderr, "usage: leveldb DIR OPERATIONS\n");
        return 1;
    }
    for (size_t at = 0; at < VALUES; at++)
        values[at] = next();
    dir = argv[1];
    options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_compression(options, 0);
    leveldb_options_set_cache(options, leveldb_cache_create_lru(CACHE));
    reads = leveldb_readoptions_create();
    writes = leveldb_writeoptions_create();
    fill(count);
    rest(count);
    leveldb_close(db);
    return 0;
}
