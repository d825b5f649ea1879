/* Orders that are paid for, on a SiftFS mount: `orders DIR`. Tickets, a section and a publish.
 *
 *     cc orders.c -o orders $(pkg-config --cflags --libs siftfs) && ./orders /mnt */

#include <siftfs.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ends the program unless the call that made this value succeeded. */
static int must(int value, const char *what) {
    if (value < 0) {
        perror(what);
        exit(1);
    }
    return value;
}

static int file(int dir, const char *name) {
    return must(openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC, 0644), name);
}

static void put(int fd, const char *text, off_t at) {
    must(pwrite(fd, text, strlen(text), at) == (ssize_t)strlen(text) ? 0 : -1, "write");
}

int main(int count, char **words) {
    int dir = must(open(count > 1 ? words[1] : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "open");

    /* 64 orders, each in its place in the order of all, and durable with one write and one flush. */
    int orders = file(dir, "orders");
    siftfs_ticket ticket = 0;
    for (int i = 0; i < 64; i++) {
        char order[16];
        snprintf(order, sizeof order, "order %2d\n", i);
        put(orders, order, i * 9L);
        must(siftfs_stage(orders, &ticket), "stage");
    }
    must(siftfs_wait(orders, ticket, -1), "wait");

    /* Two files, and a crash never shows one of them alone. */
    int both[2] = {file(dir, "buyer"), file(dir, "seller")};
    must(siftfs_atomic_start(both[0]), "start");
    must(siftfs_atomic_start(both[1]), "start");
    put(both[0], "ten less\n", 0);
    put(both[1], "ten more\n", 0);
    must(siftfs_atomic_commit_all(both, 2, SIFTFS_DURABLE), "commit");

    /* And two names. */
    put(file(dir, "table.new"), "a table\n", 0);
    put(file(dir, "index.new"), "its index\n", 0);
    struct siftfs_name names[] = {
        {.from = "table.new", .to = "table", .flags = SIFTFS_REPLACE},
        {.from = "index.new", .to = "index", .flags = SIFTFS_REPLACE},
    };
    must(siftfs_publish(dir, names, 2, SIFTFS_DURABLE), "publish");
    return 0;
}
