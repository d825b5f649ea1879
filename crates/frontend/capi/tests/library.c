/* What siftfs.h promises, tried from C: `library mount DIR` on a mount, `library volume PATH` on a
 * volume that is not mounted. Ends with 0, or prints what is wrong. */

#include <siftfs.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    close(elsewhere);
    close(unnamed);
    close(dir);
}

static void in_the_process(const char *path) {
    CHECK(siftfs_volume_open("/absent/volume") == NULL && errno == ENOENT);
    siftfs_volume *volume = siftfs_volume_open(path);
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
    siftfs_close(file);
    siftfs_close(NULL);
    CHECK(siftfs_volume_close(volume) == 0);
    FAILS(siftfs_volume_close(NULL), EINVAL);
}

int main(int count, char **words) {
    CHECK(count == 3);
    if (strcmp(words[1], "mount") == 0) {
        on_a_mount(words[2]);
    } else {
        in_the_process(words[2]);
    }
    return 0;
}
