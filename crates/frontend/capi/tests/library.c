/* What siftfs.h promises, tried from C: `library mount DIR` on a mount, `library volume PATH` on a
 * volume that is not mounted, `library served ADDRESS` and `library direct ADDRESS` on a served one,
 * the latter's at a target. Ends with 0, or prints what is wrong. */

#include <siftfs.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
    do {                                                                                  \
        if (!(what)) {                                                                    \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #what, errno);          \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define FAILS(call, number)                                                               \
    do {                                                                                  \
        errno = 0;                                                                        \
        CHECK((call) == -1);                                                              \
        CHECK(errno == (number));                                                         \
    } while (0)

static void put(int dir, const char *name, const char *text) {
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(close(fd) == 0);
}

static int holds(int dir, const char *name, const char *text) {
    char found[64] = {0};
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, found, sizeof found - 1);
    close(fd);
    return n == (ssize_t)strlen(text) && strcmp(found, text) == 0;
}

static void tickets_on_a_mount(int dir) {
    int fd = openat(dir, "staged", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    siftfs_ticket first = 0, last = 0, all = 0;
    CHECK(pwrite(fd, "one", 3, 0) == 3);
    CHECK(siftfs_stage(fd, &first) == 0);
    CHECK(pwrite(fd, "two", 3, 4096) == 3);
    CHECK(siftfs_stage(fd, &last) == 0);
    CHECK(siftfs_barrier(dir, &all) == 0);
    CHECK(first != last);
    /* A time that is over is told, or the ticket is durable already. */
    CHECK(siftfs_wait(dir, all, 0) == 0 || errno == ETIMEDOUT);
    CHECK(siftfs_wait(dir, all, 60000000000) == 0);
    CHECK(siftfs_wait(dir, all, -1) == 0);
    CHECK(siftfs_poll(dir, first) == 1 && siftfs_poll(dir, last) == 1);
    CHECK(pwrite(fd, "more", 4, 0) == 4 && siftfs_stage(fd, &last) == 0);
    int durable;
    while ((durable = siftfs_poll(fd, last)) == 0) usleep(1000);
    CHECK(durable == 1);
    FAILS(siftfs_poll(fd, all + 100000), EINVAL);
    FAILS(siftfs_wait(fd, 0, -1), EINVAL);
    FAILS(siftfs_stage(fd, NULL), EINVAL);
    FAILS(siftfs_barrier(dir, NULL), EINVAL);
    FAILS(siftfs_stage(-1, &last), EBADF);
    FAILS(siftfs_poll(-1, last), EBADF);
    close(fd);
}

static void sections_on_a_mount(int dir) {
    put(dir, "accounts", "ten here, none there");
    int fd = openat(dir, "accounts", O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(siftfs_atomic_start(fd) == 0);
    FAILS(siftfs_atomic_start(fd), EBUSY);
    CHECK(pwrite(fd, "six", 3, 0) == 3 && pwrite(fd, "four", 4, 10) == 4);
    CHECK(siftfs_atomic_commit(fd) == 0);
    CHECK(siftfs_atomic_start(fd) == 0);
    CHECK(pwrite(fd, "lost", 4, 0) == 4);
    CHECK(siftfs_atomic_abort(fd) == 0);
    FAILS(siftfs_atomic_abort(fd), EINVAL);
    FAILS(siftfs_atomic_commit(fd), EINVAL);
    CHECK(siftfs_atomic_start(fd) == 0);
    CHECK(pwrite(fd, "void", 4, 0) == 4);
    int other = openat(dir, "accounts", O_WRONLY | O_CLOEXEC);
    CHECK(ftruncate(other, 20) == 0);
    FAILS(siftfs_atomic_commit(fd), ECANCELED);
    CHECK(siftfs_atomic_abort(fd) == 0);
    close(other);
    CHECK(close(fd) == 0);
    CHECK(holds(dir, "accounts", "six here, four there"));
    int both[2] = {openat(dir, "accounts", O_RDWR | O_CLOEXEC),
                   openat(dir, "more", O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    int no_section = openat(dir, "staged", O_RDWR | O_CLOEXEC);
    for (int level = SIFTFS_ATOMIC; level <= SIFTFS_DURABLE; level++) {
        CHECK(siftfs_atomic_start(both[0]) == 0 && siftfs_atomic_start(both[1]) == 0);
        CHECK(pwrite(both[0], "one", 3, 0) == 3 && pwrite(both[1], "nine", 4, 0) == 4);
        int twice[2] = {both[0], both[0]}, none[2] = {both[0], no_section};
        FAILS(siftfs_atomic_commit_all(twice, 2, level), EINVAL);
        FAILS(siftfs_atomic_commit_all(none, 2, level), EINVAL);
        none[1] = dir;
        FAILS(siftfs_atomic_commit_all(none, 2, level), EBADF);
        FAILS(siftfs_atomic_commit_all(both, 2, (enum siftfs_level)7), EINVAL);
        CHECK(siftfs_atomic_commit_all(both, 2, level) == 0);
        FAILS(siftfs_atomic_commit(both[0]), EINVAL);
    }
    FAILS(siftfs_atomic_commit_all(NULL, 1, SIFTFS_DURABLE), EINVAL);
    FAILS(siftfs_atomic_commit_all(both, 0, SIFTFS_DURABLE), EINVAL);
    CHECK(close(both[0]) == 0 && close(both[1]) == 0 && close(no_section) == 0);
    CHECK(holds(dir, "accounts", "one here, four there") && holds(dir, "more", "nine"));
    int read_only = openat(dir, "accounts", O_RDONLY | O_CLOEXEC);
    FAILS(siftfs_atomic_start(read_only), EBADF);
    FAILS(siftfs_atomic_start(-1), EBADF);
    close(read_only);
}

static struct siftfs_number at(uint64_t value) { return (struct siftfs_number){value, -1}; }

static struct siftfs_bytes text(const char *data) {
    return (struct siftfs_bytes){data, strlen(data), -1, 0};
}

static struct siftfs_bytes result(int step) {
    return (struct siftfs_bytes){NULL, SIZE_MAX, step, 0};
}

static void compounds_on_a_mount(int dir) {
    put(dir, "ledger", "0123456789");
    put(dir, "gone", "gone");
    int fd = openat(dir, "ledger", O_RDWR | O_CLOEXEC);
    siftfs_compound *steps = siftfs_compound_new();
    CHECK(fd >= 0 && steps != NULL);
    int found = siftfs_compound_read(steps, fd, at(2), 4);
    int sum = siftfs_compound_checksum(steps, SIFTFS_CRC32C, result(found));
    int new = siftfs_compound_create(steps, "sums", 0600);
    CHECK(found == 0 && sum == 1 && new == 2);
    CHECK(siftfs_compound_append(steps, SIFTFS_STEP(new), result(sum)) == 3);
    int frame = siftfs_compound_compress(steps, SIFTFS_ZSTD, result(found));
    int again = siftfs_compound_decompress(steps, SIFTFS_ZSTD, result(frame), 100);
    struct siftfs_bytes one = {NULL, 1, again, 1}, other = {NULL, 1, again, 2};
    int part = siftfs_compound_join(steps, one, other);
    int old = siftfs_compound_patch(steps, fd, at(0), result(part));
    CHECK(siftfs_compound_compare_and_set(steps, fd, at(8), text("89"), text("xy")) >= 0);
    CHECK(siftfs_compound_write(steps, fd, (struct siftfs_number){0, found}, text("w")) >= 0);
    int added = siftfs_compound_add(steps, SIFTFS_STEP(new), at(0), 4, at(1));
    CHECK(siftfs_compound_link(steps, SIFTFS_STEP(new), "linked") >= 0);
    CHECK(siftfs_compound_rename(steps, "linked", "gone", SIFTFS_REPLACE) >= 0);
    CHECK(siftfs_compound_unlink(steps, "gone") >= 0);
    struct siftfs_attributes set = {SIFTFS_SET_MODE | SIFTFS_SET_MTIME, 0640, 0, 0, {0, 0}, {7, 5}};
    CHECK(siftfs_compound_set_attributes(steps, fd, &set) >= 0);
    CHECK(siftfs_compound_close(steps, new) >= 0);
    int wanted[] = {found, sum, new, part, old, added};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        CHECK(siftfs_compound_want(steps, wanted[i]) == 0);
    CHECK(siftfs_compound_run(steps, dir, SIFTFS_DURABLE) == 0);
    CHECK(siftfs_compound_refused(steps) == -1);
    size_t length = 0;
    const char *bytes = siftfs_compound_bytes(steps, found, &length);
    CHECK(bytes != NULL && length == 4 && memcmp(bytes, "2345", 4) == 0);
    bytes = siftfs_compound_bytes(steps, part, &length);
    CHECK(bytes != NULL && length == 2 && memcmp(bytes, "34", 2) == 0);
    bytes = siftfs_compound_bytes(steps, old, &length);
    CHECK(bytes != NULL && length == 2 && memcmp(bytes, "01", 2) == 0);
    uint64_t crc = 0, before = 0, ino = 0;
    CHECK(siftfs_compound_number(steps, sum, &crc) == 0);
    CHECK(siftfs_compound_number(steps, added, &before) == 0 && before == crc);
    CHECK(siftfs_compound_number(steps, new, &ino) == 0 && ino > 0);
    CHECK(siftfs_compound_bytes(steps, frame, &length) == NULL && errno == EINVAL);
    FAILS(siftfs_compound_number(steps, old, &ino), EINVAL);
    CHECK(holds(dir, "ledger", "3423w567xy") && openat(dir, "gone", O_RDONLY) == -1);
    /* Again: the new file is there by now. */
    FAILS(siftfs_compound_run(steps, dir, SIFTFS_VISIBLE), EEXIST);
    CHECK(siftfs_compound_refused(steps) == new);
    FAILS(siftfs_compound_number(steps, sum, &crc), EINVAL);
    FAILS(siftfs_compound_run(steps, dir, (enum siftfs_level)7), EINVAL);
    FAILS(siftfs_compound_run(steps, -1, SIFTFS_VISIBLE), EBADF);
    FAILS(siftfs_compound_want(steps, 99), EINVAL);
    FAILS(siftfs_compound_open(steps, "x", O_CREAT), EINVAL);
    FAILS(siftfs_compound_open(steps, NULL, O_RDONLY), EINVAL);
    FAILS(siftfs_compound_add(steps, fd, at(0), 3, at(1)), EINVAL);
    siftfs_compound_free(steps);
    siftfs_compound_free(NULL);
    FAILS(siftfs_compound_lookup(NULL, "x"), EINVAL);
    FAILS(siftfs_compound_run(NULL, dir, SIFTFS_VISIBLE), EINVAL);
    close(fd);
}

static void on_a_mount(const char *path) {
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(dir >= 0);
    put(dir, "a", "old");
    put(dir, "a.tmp", "new a");
    int unnamed = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    CHECK(unnamed >= 0);
    CHECK(write(unnamed, "unnamed", 7) == 7);
    struct siftfs_name names[] = {
        {.from = "a.tmp", .to = "a", .flags = SIFTFS_REPLACE},
        {.from = NULL, .from_fd = unnamed, .to = "b"},
    };
    CHECK(siftfs_publish(dir, names, 2, SIFTFS_DURABLE) == 0);
    CHECK(holds(dir, "a", "new a") && holds(dir, "b", "unnamed"));

    put(dir, "c.tmp", "c");
    struct siftfs_name one = {.from = "c.tmp", .to = "a"};
    FAILS(siftfs_publish(dir, &one, 1, SIFTFS_VISIBLE), EEXIST);
    one.flags = 8;
    FAILS(siftfs_publish(dir, &one, 1, SIFTFS_VISIBLE), EINVAL);
    one.flags = SIFTFS_REPLACE;
    FAILS(siftfs_publish(dir, &one, 1, (enum siftfs_level)7), EINVAL);
    FAILS(siftfs_publish(-1, &one, 1, SIFTFS_VISIBLE), EBADF);
    FAILS(siftfs_publish(dir, NULL, 1, SIFTFS_VISIBLE), EINVAL);
    one.to = NULL;
    FAILS(siftfs_publish(dir, &one, 1, SIFTFS_VISIBLE), EINVAL);
    one.to = "a";
    int elsewhere = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FAILS(siftfs_publish(elsewhere, &one, 1, SIFTFS_VISIBLE), ENOTTY);
    CHECK(holds(dir, "a", "new a") && holds(dir, "c.tmp", "c"));
    FAILS(siftfs_barrier(elsewhere, &(siftfs_ticket){0}), ENOTTY);
    close(elsewhere);
    close(unnamed);
    tickets_on_a_mount(dir);
    sections_on_a_mount(dir);
    compounds_on_a_mount(dir);
    close(dir);
}

/* What a callback was told, and its lock: it may come from another thread. */
struct told {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int calls, error;
};

static void tell(void *context, int error) {
    struct told *told = context;
    pthread_mutex_lock(&told->lock);
    told->calls++;
    told->error = error;
    pthread_cond_signal(&told->changed);
    pthread_mutex_unlock(&told->lock);
}

static void wait_for(struct told *told, int calls) {
    pthread_mutex_lock(&told->lock);
    while (told->calls < calls) pthread_cond_wait(&told->changed, &told->lock);
    pthread_mutex_unlock(&told->lock);
}

static void tickets_in_the_process(siftfs_volume *volume, siftfs_file *file) {
    struct told told = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, -1};
    siftfs_ticket first = 0, last = 0, all = 0;
    CHECK(siftfs_pwrite(file, "hello", 5, 4096) == 5);
    CHECK(siftfs_file_stage(file, &first) == 0);
    CHECK(siftfs_pwrite(file, "hello", 5, 4096) == 5);
    CHECK(siftfs_file_stage(file, &last) == 0);
    CHECK(siftfs_volume_barrier(volume, &all) == 0);
    CHECK(siftfs_volume_when_durable(volume, last, tell, &told) == 0);
    wait_for(&told, 1);
    CHECK(told.error == 0);
    CHECK(siftfs_volume_wait(volume, all, -1) == 0);
    CHECK(siftfs_volume_wait(volume, all, 0) == 0);
    CHECK(siftfs_volume_poll(volume, first) == 1 && siftfs_volume_poll(volume, all) == 1);
    CHECK(siftfs_volume_when_durable(volume, all + 100000, tell, &told) == 0);
    wait_for(&told, 2);
    CHECK(told.error == EINVAL && told.calls == 2);
    FAILS(siftfs_volume_poll(volume, all + 100000), EINVAL);
    FAILS(siftfs_volume_wait(volume, 0, 1), EINVAL);
    FAILS(siftfs_volume_when_durable(volume, all, NULL, NULL), EINVAL);
    FAILS(siftfs_file_stage(file, NULL), EINVAL);
    FAILS(siftfs_file_stage(NULL, &first), EINVAL);
    FAILS(siftfs_volume_barrier(NULL, &all), EINVAL);
}

static int file_holds(siftfs_file *file, const char *text, uint64_t at) {
    char found[64] = {0};
    CHECK(siftfs_pread(file, found, strlen(text), at) == (ssize_t)strlen(text));
    return strcmp(found, text) == 0;
}

static void compounds_in_the_process(siftfs_volume *volume) {
    siftfs_file *file = siftfs_open(volume, "/counted", O_CREAT | O_RDWR, 0600);
    CHECK(file != NULL && siftfs_pwrite(file, "0123456789", 10, 0) == 10);
    siftfs_compound *steps = siftfs_compound_new();
    int found = siftfs_compound_read(steps, 0, at(2), 4);
    int sum = siftfs_compound_checksum(steps, SIFTFS_CRC32C, result(found));
    int new = siftfs_compound_create(steps, "sums", 0600);
    CHECK(siftfs_compound_append(steps, SIFTFS_STEP(new), result(sum)) == 3);
    CHECK(siftfs_compound_want(steps, found) == 0 && siftfs_compound_want(steps, sum) == 0);
    siftfs_file *const files[] = {file};
    CHECK(siftfs_compound_run_in(steps, volume, files, 1, SIFTFS_DURABLE) == 0);
    size_t length;
    const char *bytes = siftfs_compound_bytes(steps, found, &length);
    CHECK(bytes != NULL && length == 4 && memcmp(bytes, "2345", 4) == 0);
    uint64_t crc;
    CHECK(siftfs_compound_number(steps, sum, &crc) == 0);
    siftfs_compound *record = siftfs_compound_new();
    int rest = siftfs_compound_join(record, text("2 bytes, "), text("and more"));
    int head = siftfs_compound_checksum(record, SIFTFS_CRC32C, result(rest));
    int whole = siftfs_compound_join(record, result(head), result(rest));
    CHECK(rest == 0 && siftfs_compound_write(record, 0, at(100), result(whole)) == 3);
    CHECK(siftfs_compound_want(record, head) == 0);
    CHECK(siftfs_compound_run_in(record, volume, files, 1, SIFTFS_VISIBLE) == 0);
    uint64_t head_sum;
    uint32_t head_stored = 0;
    CHECK(siftfs_compound_number(record, head, &head_sum) == 0);
    CHECK(siftfs_pread(file, &head_stored, 4, 100) == 4 && head_stored == head_sum);
    CHECK(file_holds(file, "2 bytes, and more", 104));
    siftfs_compound_free(record);
    siftfs_file *sums = siftfs_open(volume, "/sums", O_RDWR, 0);
    uint32_t stored = 0;
    CHECK(sums != NULL && siftfs_pread(sums, &stored, 4, 0) == 4 && stored == crc);
    siftfs_close(sums);
    FAILS(siftfs_compound_run_in(steps, volume, files, 1, SIFTFS_VISIBLE), EEXIST);
    CHECK(siftfs_compound_refused(steps) == new);
    FAILS(siftfs_compound_run_in(steps, volume, files, 0, SIFTFS_VISIBLE), EBADF);
    FAILS(siftfs_compound_run_in(steps, NULL, files, 1, SIFTFS_VISIBLE), EINVAL);
    siftfs_compound_free(steps);
    siftfs_close(file);
}

static void sections_in_the_process(siftfs_volume *volume, siftfs_file *one) {
    siftfs_file *two = siftfs_open(volume, "/two", O_RDWR | O_CREAT, 0600);
    CHECK(two != NULL);
    siftfs_section *both[2] = {siftfs_section_start(one), siftfs_section_start(two)};
    CHECK(both[0] != NULL && both[1] != NULL);
    CHECK(siftfs_section_start(one) == NULL && errno == EBUSY);
    CHECK(siftfs_section_start(NULL) == NULL && errno == EINVAL);
    CHECK(siftfs_section_pwrite(both[0], "ten", 3, 0) == 3);
    CHECK(siftfs_section_pwrite(both[1], "none", 4, 0) == 4);
    char found[8] = {0};
    CHECK(siftfs_section_pread(both[0], found, 3, 0) == 3 && strcmp(found, "ten") == 0);
    CHECK(siftfs_pread(two, found, 4, 0) == 0);
    siftfs_section *wrong[2] = {both[0], both[0]};
    FAILS(siftfs_section_commit(wrong, 2, SIFTFS_DURABLE), EINVAL);
    wrong[1] = NULL;
    FAILS(siftfs_section_commit(wrong, 2, SIFTFS_DURABLE), EINVAL);
    FAILS(siftfs_section_commit(both, 2, (enum siftfs_level)7), EINVAL);
    FAILS(siftfs_section_commit(NULL, 1, SIFTFS_DURABLE), EINVAL);
    CHECK(siftfs_section_commit(both, 2, SIFTFS_DURABLE) == 0);
    CHECK(file_holds(one, "ten", 0) && file_holds(two, "none", 0));
    both[0] = siftfs_section_start(one);
    CHECK(siftfs_section_pwrite(both[0], "four", 4, 100) == 4);
    CHECK(siftfs_section_commit(both, 1, SIFTFS_ATOMIC) == 0);
    CHECK(file_holds(one, "four", 100));
    both[0] = siftfs_section_start(one);
    CHECK(siftfs_section_pwrite(both[0], "lost", 4, 0) == 4);
    siftfs_section_abort(both[0]);
    siftfs_section_abort(NULL);
    /* Its commit is refused, and it is gone as well: the next one starts. */
    both[0] = siftfs_section_start(one);
    CHECK(siftfs_section_pwrite(both[0], "void", 4, 0) == 4);
    CHECK(siftfs_pwrite(one, "ten", 3, 0) == 3);
    FAILS(siftfs_section_commit(both, 1, SIFTFS_DURABLE), ECANCELED);
    both[0] = siftfs_section_start(one);
    CHECK(both[0] != NULL);
    siftfs_section_abort(both[0]);
    CHECK(file_holds(one, "ten", 0));
    siftfs_close(two);
}

/* What a listing brought. */
struct listed {
    int count, directories;
    char last[64];
};

static void note(void *context, const char *name, uint64_t inode, unsigned char type) {
    struct listed *listed = context;
    CHECK(inode > 0 && strlen(name) < sizeof listed->last);
    listed->count++;
    listed->directories += type == DT_DIR;
    strcpy(listed->last, name);
}

static void names_in_the_process(siftfs_volume *volume) {
    struct stat stat = {0};
    struct listed listed = {0};
    CHECK(siftfs_mkdir(volume, "/names", 0750) == 0);
    FAILS(siftfs_mkdir(volume, "/names", 0750), EEXIST);
    CHECK(siftfs_stat(volume, "/names", &stat) == 0);
    CHECK(S_ISDIR(stat.st_mode) && (stat.st_mode & 07777) == 0750 && stat.st_nlink == 2);
    CHECK(siftfs_list(volume, "/names", note, &listed) == 0 && listed.count == 0);
    siftfs_file *file = siftfs_open(volume, "/names/a", O_RDWR | O_CREAT, 0604);
    CHECK(file != NULL && siftfs_pwrite(file, "0123456789", 10, 0) == 10);
    CHECK(siftfs_ftruncate(file, 7) == 0 && siftfs_fstat(file, &stat) == 0);
    CHECK(S_ISREG(stat.st_mode) && (stat.st_mode & 07777) == 0604 && stat.st_size == 7);
    CHECK(stat.st_mtime > 1000000000 && stat.st_blocks > 0 && stat.st_nlink == 1);
    ino_t inode = stat.st_ino;
    CHECK(siftfs_link(volume, "/names/a", "/names/b") == 0);
    CHECK(siftfs_stat(volume, "/names/b", &stat) == 0);
    CHECK(stat.st_ino == inode && stat.st_nlink == 2);
    FAILS(siftfs_rename(volume, "/names/b", "/names/a", 0), EEXIST);
    FAILS(siftfs_rename(volume, "/names/b", "/names/c", 2), EINVAL);
    CHECK(siftfs_rename(volume, "/names/b", "/names/c", 0) == 0);
    FAILS(siftfs_stat(volume, "/names/b", &stat), ENOENT);
    CHECK(siftfs_mkdir(volume, "/names/d", 0700) == 0);
    CHECK(siftfs_rename(volume, "/names/d", "/names/e", SIFTFS_REPLACE) == 0);
    CHECK(siftfs_list(volume, "/names/", note, &listed) == 0);
    CHECK(listed.count == 3 && listed.directories == 1);
    CHECK(siftfs_unlink(volume, "/names/c") == 0);
    FAILS(siftfs_unlink(volume, "/names/c"), ENOENT);
    FAILS(siftfs_unlink(volume, "/names/e"), EISDIR);
    FAILS(siftfs_rmdir(volume, "/names"), ENOTEMPTY);
    FAILS(siftfs_rmdir(volume, "/names/a"), ENOTDIR);
    CHECK(siftfs_rmdir(volume, "/names/e") == 0);
    memset(&listed, 0, sizeof listed);
    CHECK(siftfs_list(volume, "/names", note, &listed) == 0);
    CHECK(listed.count == 1 && listed.directories == 0 && strcmp(listed.last, "a") == 0);
    CHECK(siftfs_sync_dir(volume, "/names") == 0 && siftfs_volume_sync(volume) == 0);
    FAILS(siftfs_list(volume, "/names/a", note, &listed), ENOTDIR);
    FAILS(siftfs_list(volume, "/names", NULL, &listed), EINVAL);
    FAILS(siftfs_list(NULL, "/names", note, &listed), EINVAL);
    FAILS(siftfs_stat(volume, NULL, &stat), EINVAL);
    FAILS(siftfs_stat(volume, "/names", NULL), EINVAL);
    FAILS(siftfs_fstat(NULL, &stat), EINVAL);
    FAILS(siftfs_ftruncate(NULL, 0), EINVAL);
    FAILS(siftfs_sync_dir(volume, "/absent"), ENOENT);
    FAILS(siftfs_volume_sync(NULL), EINVAL);
    siftfs_close(file);
}

static void open_read_and_write_close(siftfs_volume *volume) {
    char found[16] = {0};
    size_t count = 0;
    siftfs_file *file = siftfs_open(volume, "/names/both", O_RDWR | O_CREAT, 0600);
    CHECK(file != NULL && siftfs_write_close(volume, file, "0123456789", 10, 2) == 0);
    file = siftfs_open_read(volume, "/names/both", found, 4, 4, &count);
    CHECK(file != NULL && count == 4 && strcmp(found, "2345") == 0);
    CHECK(siftfs_pwrite(file, "x", 1, 2) == 1 && file_holds(file, "x123", 2));
    siftfs_close(file);
    file = siftfs_open_read(volume, "/names/both", found, sizeof found, 0, &count);
    CHECK(file != NULL && count == 12);
    /* Closed with an error: the bytes are no memory of the caller's. */
    FAILS(siftfs_write_close(volume, file, NULL, 1, 0), EINVAL);
    FAILS(siftfs_write_close(volume, NULL, "x", 1, 0), EINVAL);
    CHECK(siftfs_open_read(volume, "/absent", found, 4, 0, &count) == NULL && errno == ENOENT);
    CHECK(siftfs_open_read(volume, "/names", found, 4, 0, &count) == NULL && errno == EISDIR);
    CHECK(siftfs_open_read(volume, "/names/both", NULL, 4, 0, &count) == NULL && errno == EINVAL);
    CHECK(siftfs_open_read(volume, "/names/both", found, 4, 0, NULL) == NULL && errno == EINVAL);
    CHECK(siftfs_unlink(volume, "/names/both") == 0);
}

static siftfs_volume *connected(const char *address) {
    CHECK(siftfs_volume_connect("nowhere", NULL) == NULL && errno == ECONNREFUSED);
    CHECK(strstr(siftfs_volume_message(), "neither a unix socket nor a TCP address") != NULL);
    CHECK(siftfs_volume_connect(NULL, NULL) == NULL && errno == EINVAL);
    CHECK(siftfs_volume_connect(address, "another") == NULL && errno == ECONNREFUSED);
    CHECK(strstr(siftfs_volume_message(), "no volume is called") != NULL);
    CHECK(siftfs_volume_connect_with(address, NULL, "timeo=5") == NULL && errno == ECONNREFUSED);
    CHECK(strstr(siftfs_volume_message(), "say soft") != NULL);
    siftfs_volume *volume = siftfs_volume_connect(address, "volume");
    CHECK(siftfs_volume_close(volume) == 0);
    volume = siftfs_volume_connect_with(address, "volume", "soft,timeo=5");
    CHECK(volume != NULL && siftfs_volume_close(volume) == 0);
    volume = siftfs_volume_connect_with(address, NULL, "once");
    CHECK(volume != NULL && siftfs_volume_close(volume) == 0);
    return siftfs_volume_connect(address, NULL);
}

static siftfs_volume *opened(const char *path) {
    CHECK(siftfs_volume_open("/absent/volume") == NULL && errno == ENOENT);
    return siftfs_volume_open(path);
}

static void in_the_process(siftfs_volume *volume) {
    CHECK(volume != NULL);
    CHECK(siftfs_open(volume, "/absent", O_RDWR, 0) == NULL && errno == ENOENT);
    CHECK(siftfs_open(volume, "/f", O_RDWR | O_APPEND, 0) == NULL && errno == EINVAL);
    siftfs_file *file = siftfs_open(volume, "/f.tmp", O_RDWR | O_CREAT, 0640);
    CHECK(file != NULL);
    CHECK(siftfs_pwrite(file, "hello", 5, 4096) == 5);
    CHECK(siftfs_fdatasync(file) == 0);
    char found[16] = {0};
    CHECK(siftfs_pread(file, found, sizeof found, 4096) == 5);
    CHECK(strcmp(found, "hello") == 0);
    CHECK(siftfs_pread(file, found, sizeof found, 9000) == 0);
    FAILS(siftfs_pread(NULL, found, 1, 0), EINVAL);
    FAILS(siftfs_pwrite(file, NULL, 1, 0), EINVAL);
    struct siftfs_name name = {.from = "/f.tmp", .to = "/f"};
    CHECK(siftfs_volume_publish(volume, &name, 1, SIFTFS_DURABLE) == 0);
    FAILS(siftfs_volume_publish(volume, &name, 1, SIFTFS_DURABLE), ENOENT);
    CHECK(siftfs_fsync(file) == 0);
    siftfs_file *other = siftfs_open(volume, "/f", O_RDWR, 0);
    CHECK(other != NULL);
    CHECK(siftfs_flock(file, LOCK_EX) == 0);
    FAILS(siftfs_flock(other, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    CHECK(siftfs_flock(file, LOCK_SH | LOCK_NB) == 0);
    CHECK(siftfs_flock(other, LOCK_SH | LOCK_NB) == 0);
    CHECK(siftfs_flock(other, LOCK_UN) == 0);
    FAILS(siftfs_flock(file, 0), EINVAL);
    FAILS(siftfs_flock(NULL, LOCK_EX), EINVAL);
    siftfs_close(other);
    tickets_in_the_process(volume, file);
    compounds_in_the_process(volume);
    sections_in_the_process(volume, file);
    names_in_the_process(volume);
    open_read_and_write_close(volume);
    siftfs_close(file);
    siftfs_close(NULL);
    CHECK(siftfs_volume_close(volume) == 0);
    FAILS(siftfs_volume_close(NULL), EINVAL);
}

/* Opens a file, and waits until something of it is granted. */
static siftfs_direct_file *at_the_target(siftfs_direct *direct, const char *path) {
    siftfs_direct_file *file = siftfs_direct_open(direct, path, O_RDWR, 0);
    CHECK(file != NULL);
    for (int tries = 0; tries < 3000 && siftfs_direct_is_direct(file) != 1; tries++) {
        usleep(10000);
    }
    CHECK(siftfs_direct_is_direct(file) == 1);
    return file;
}

static void refused_of_direct_files(siftfs_direct *direct, const char *address) {
    CHECK(siftfs_direct_connect("nowhere", NULL) == NULL && errno == ECONNREFUSED);
    CHECK(siftfs_direct_connect(NULL, NULL) == NULL && errno == EINVAL);
    CHECK(siftfs_direct_connect(address, "another") == NULL && errno == ECONNREFUSED);
    CHECK(strstr(siftfs_volume_message(), "no volume is called") != NULL);
    CHECK(siftfs_direct_volume(NULL) == NULL && errno == EINVAL);
    CHECK(siftfs_direct_open(direct, "/absent", O_RDWR, 0) == NULL && errno == ENOENT);
    CHECK(siftfs_direct_open(direct, "/f", O_WRONLY, 0) == NULL && errno == EINVAL);
    CHECK(siftfs_direct_open(direct, "/f", O_CREAT, 0600) == NULL && errno == EINVAL);
    uint64_t size = 0;
    FAILS(siftfs_direct_size(NULL, &size), EINVAL);
    FAILS(siftfs_direct_pwrite(NULL, "x", 1, 0, 0), EINVAL);
    FAILS(siftfs_direct_pread(NULL, &size, 1, 0), EINVAL);
    FAILS(siftfs_direct_write_together(NULL, NULL, 0), EINVAL);
    FAILS(siftfs_direct_fsync(NULL), EINVAL);
    FAILS(siftfs_direct_is_direct(NULL), EINVAL);
    siftfs_direct_close(NULL);
    siftfs_direct_disconnect(NULL);
}

static void at_a_target(const char *address) {
    siftfs_direct *direct = siftfs_direct_connect(address, "volume");
    CHECK(direct != NULL);
    siftfs_volume *names = siftfs_direct_volume(direct);
    CHECK(names != NULL);
    static char block[4096];
    memset(block, 'a', sizeof block);
    siftfs_direct_file *file = siftfs_direct_open(direct, "/f", O_RDWR | O_CREAT, 0640);
    CHECK(file != NULL);
    CHECK(siftfs_direct_open(direct, "/f", O_RDWR | O_CREAT, 0640) == NULL && errno == EEXIST);
    for (uint64_t at = 0; at < 64; at++) {
        CHECK(siftfs_direct_pwrite(file, block, sizeof block, at * sizeof block, 0) == 4096);
    }
    CHECK(siftfs_direct_fsync(file) == 0);
    siftfs_direct_close(file);
    refused_of_direct_files(direct, address);
    file = at_the_target(direct, "/f");
    CHECK(siftfs_direct_pwrite(file, "hello", 5, 4096, 1) == 5);
    CHECK(siftfs_direct_pwrite(file, "twice", 5, 8192, 0) == 5);
    CHECK(siftfs_direct_fdatasync(file) == 0);
    struct siftfs_piece pieces[] = {{"one", 3, 12288}, {"two", 3, 20480}};
    CHECK(siftfs_direct_write_together(file, pieces, 2) == 0);
    FAILS(siftfs_direct_write_together(file, NULL, 1), EINVAL);
    char found[8] = {0};
    CHECK(siftfs_direct_pread(file, found, 5, 4096) == 5 && memcmp(found, "hello", 5) == 0);
    CHECK(siftfs_direct_pread(file, found, 3, 20480) == 3 && memcmp(found, "two", 3) == 0);
    FAILS(siftfs_direct_pread(file, NULL, 3, 0), EINVAL);
    uint64_t size = 0;
    CHECK(siftfs_direct_size(file, &size) == 0 && size == 64 * 4096);
    CHECK(siftfs_direct_pwrite(file, "end", 3, size, 1) == 3);
    CHECK(siftfs_direct_size(file, &size) == 0 && size == 64 * 4096 + 3);
    CHECK(siftfs_direct_ftruncate(file, 100000) == 0 && siftfs_direct_fsync(file) == 0);
    CHECK(siftfs_direct_size(file, &size) == 0 && size == 100000);
    siftfs_direct_close(file);
    siftfs_direct_file *reader = siftfs_direct_open(direct, "/f", O_RDONLY, 0);
    CHECK(reader != NULL);
    CHECK(siftfs_direct_pread(reader, found, 5, 8192) == 5 && memcmp(found, "twice", 5) == 0);
    FAILS(siftfs_direct_pwrite(reader, "x", 1, 0, 0), EBADF);
    CHECK(siftfs_direct_size(reader, &size) == 0 && size == 100000);
    siftfs_direct_close(reader);
    CHECK(siftfs_rename(names, "/f", "/renamed", 0) == 0);
    CHECK(siftfs_volume_sync(names) == 0);
    siftfs_direct_disconnect(direct);
}

int main(int count, char **words) {
    CHECK(count == 3);
    if (strcmp(words[1], "mount") == 0) {
        on_a_mount(words[2]);
    } else if (strcmp(words[1], "served") == 0) {
        in_the_process(connected(words[2]));
    } else if (strcmp(words[1], "direct") == 0) {
        at_a_target(words[2]);
    } else {
        in_the_process(opened(words[2]));
    }
    return 0;
}
