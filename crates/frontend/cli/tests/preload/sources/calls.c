/* Random calls on a few files by a few descriptors, each with what it answered: the same numbers give the same text in
 * any directory, with and without a library in between. `calls DIR SEED COUNT`. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <spawn.h>
#include <unistd.h>

#define FDS 10
#define FILES 4
extern char **environ;
static uint64_t state;
/* Without other processes, and without what only the kernel does. */
static int calm;
static int fds[FDS];
/* The stream of a descriptor, if it has one. */
static FILE *streams[FDS];
static char *own;
static char buffer[20000], other[20000];

static uint32_t below(uint32_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 20) % n;
}

static uint32_t hash(const char *bytes, ssize_t len) {
    uint32_t sum = 2166136261u;
    for (ssize_t i = 0; i < len; i++)
        sum = (sum ^ (unsigned char)bytes[i]) * 16777619u;
    return sum;
}

static void say(const char *what, int slot, long result) {
    printf("%s %d: %ld %s\n", what, slot, result, result < 0 ? strerror(errno) : "");
}

static void say_read(const char *what, int slot, long result) {
    printf("%s %d: %ld %08x %s\n", what, slot, result, hash(buffer, result > 0 ? result : 0),
           result < 0 ? strerror(errno) : "");
}

/* Lengths are small for the most part. */
static size_t length(void) {
    switch (below(8)) {
    case 0: return 0;
    case 1: return below(sizeof buffer);
    default: return below(600);
    }
}

static off_t place(void) {
    switch (below(30)) {
    case 0: return -1 - (off_t)below(5);
    case 1: return 100000 + below(100000);
    default: return below(12000);
    }
}

static void fill(size_t len) {
    char c = (char)('a' + below(26));
    for (size_t i = 0; i < len; i++)
        buffer[i] = (char)(c + i % 7);
}

static struct iovec pieces[4];
static int split(size_t len) {
    int count = 1 + (int)below(4);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        size_t part = i == count - 1 ? len - at : below((uint32_t)(len - at) + 1);
        pieces[i].iov_base = buffer + at;
        pieces[i].iov_len = part;
        at += part;
    }
    return count;
}

/* A stream is closed with its descriptor. */
static void shut(int slot) {
    if (streams[slot])
        say("fclose", slot, fclose(streams[slot]));
    else if (fds[slot] >= 0)
        say("close", slot, close(fds[slot]));
    fds[slot] = -1, streams[slot] = NULL;
}

static void says_stream(const char *what, int slot) {
    if (streams[slot])
        fds[slot] = fileno(streams[slot]);
    printf("%s %d: %d %s\n", what, slot, streams[slot] != NULL, streams[slot] ? "" : strerror(errno));
    if (streams[slot] && below(3) == 0)
        say("setvbuf", slot, setvbuf(streams[slot], NULL, below(2) ? _IOFBF : _IONBF, 64 + below(3000)));
}

/* A stream, by a name or by a descriptor that there is. */
static void streams_open(int slot) {
    static const char *const modes[] = {"r+", "r+", "w+", "a+", "a", "r", "re"};
    const char *mode = modes[below(sizeof modes / sizeof *modes)];
    char name[3] = {'f', (char)('0' + below(FILES)), 0};
    if (fds[slot] >= 0 && below(2)) {
        int flags = fcntl(fds[slot], F_GETFL), how = flags & O_ACCMODE, appends = flags & O_APPEND;
        streams[slot] = fdopen(fds[slot], how == O_RDONLY ? "r" : appends ? (how == O_WRONLY ? "a" : "a+") : how == O_WRONLY ? "w" : "r+");
        return says_stream("fdopen", slot);
    }
    shut(slot);
    streams[slot] = fopen(name, mode);
    says_stream(mode, slot);
}

/* Calls of the C library's streams. Between reading and writing there is a seek, as the standard wants it. */
static void flows(int slot) {
    FILE *stream = streams[slot];
    size_t len = length();
    if (!stream)
        return streams_open(slot);
    clearerr(stream);
    switch (below(14)) {
    case 0:
    case 1:
    case 2:
        say("fseek", slot, fseek(stream, 0, SEEK_CUR));
        fill(len);
        say("fwrite", slot, (long)fwrite(buffer, 1, len, stream));
        if (below(2))
            say("fflush", slot, fflush(stream));
        if (below(2))
            say("fsync", slot, fsync(fileno(stream)));
        break;
    case 3:
        say("fseek", slot, fseek(stream, 0, SEEK_CUR));
        say("fprintf", slot, fprintf(stream, "%d and %s\n", slot, "more"));
        break;
    case 4:
    case 5:
        say("fseek", slot, fseek(stream, 0, SEEK_CUR));
        memset(buffer, 0, len);
        say_read("fread", slot, (long)fread(buffer, 1, len, stream));
        break;
    case 6:
        say("fseek", slot, fseek(stream, 0, SEEK_CUR));
        memset(buffer, 0, 100);
        printf("fgets %d: %d %08x\n", slot, fgets(buffer, 90, stream) != NULL, hash(buffer, 100));
        say("getc", slot, getc(stream));
        break;
    case 7: say("fseek", slot, fseek(stream, place(), SEEK_SET)); break;
    case 8: say("fseek", slot, fseek(stream, -(long)below(300), SEEK_END)); break;
    case 9: say("ftell", slot, ftell(stream)), say("fflush", slot, fflush(stream)); break;
    case 10: say("fflush", slot, fflush(stream)); break;
    case 11: say("dprintf", slot, dprintf(fileno(stream), "by number %d\n", slot)); break;
    case 12: {
        char name[3] = {'f', (char)('0' + below(FILES)), 0};
        streams[slot] = freopen(name, below(2) ? "r+" : "a", stream);
        if (!streams[slot])
            fds[slot] = -1;
        return says_stream("freopen", slot);
    }
    default: shut(slot);
    }
}

static void opens(int slot) {
    static const int flags[] = {O_RDWR, O_RDWR, O_RDWR, O_RDWR | O_APPEND, O_WRONLY | O_APPEND, O_WRONLY, O_RDONLY,
                                O_RDWR | O_TRUNC, O_RDWR | O_DSYNC};
    char name[3] = {'f', (char)('0' + below(FILES)), 0};
    int how = flags[below(sizeof flags / sizeof *flags - (unsigned)calm)];
    shut(slot);
    fds[slot] = below(3) ? open(name, how | O_CREAT | O_CLOEXEC, 0644) : openat(AT_FDCWD, name, how | O_CREAT, 0644);
    printf("open %d: %s %x %d\n", slot, name, how, fds[slot] >= 0);
}

static void reads(int slot, int fd) {
    size_t len = length();
    memset(buffer, 0, len);
    switch (below(5)) {
    case 0: say_read("read", slot, read(fd, buffer, len)); break;
    case 1: say_read("pread", slot, pread(fd, buffer, len, place())); break;
    case 2: say_read("readv", slot, readv(fd, pieces, split(len))); break;
    case 3: say_read("preadv", slot, preadv(fd, pieces, split(len), place())); break;
    default: say_read("preadv2", slot, preadv2(fd, pieces, split(len), below(2) ? -1 : place(), 0)); break;
    }
}

static void writes(int slot, int fd) {
    size_t len = length();
    fill(len);
    switch (below(6)) {
    case 0:
    case 1: say("write", slot, write(fd, buffer, len)); break;
    case 2: say("pwrite", slot, pwrite(fd, buffer, len, place())); break;
    case 3: say("writev", slot, writev(fd, pieces, split(len))); break;
    case 4: say("pwritev", slot, pwritev(fd, pieces, split(len), place())); break;
    default: say("pwritev2", slot, pwritev2(fd, pieces, split(len), below(2) ? -1 : place(), calm || below(4) ? 0 : RWF_DSYNC));
    }
}

static void seeks(int slot, int fd) {
    int whence = (int)below(3);
    off_t by = whence == SEEK_SET ? place() : (off_t)below(4000) - 2000;
    say("lseek", slot, lseek(fd, by, whence));
}

static void syncs(int slot, int fd) {
    say("sync", slot, below(2) ? fsync(fd) : fdatasync(fd));
}

static void looks(int slot, int fd) {
    struct stat one, two;
    say("fstat", slot, fstat(fd, &one));
    if (fds[slot] >= 0)
        printf("size %ld\n", (long)one.st_size);
    char name[3] = {'f', (char)('0' + below(FILES)), 0};
    int found = stat(name, &two);
    printf("stat %s: %d %ld\n", name, found, found ? 0 : (long)two.st_size);
    say("offset", slot, lseek(fd, 0, SEEK_CUR));
}

static void changes(int slot, int fd) {
    switch (below(4)) {
    case 0: say("ftruncate", slot, ftruncate(fd, place())); break;
    case 1: say("fallocate", slot, posix_fallocate(fd, below(9000), 1 + below(3000))); break;
    case 2: say("append", slot, fcntl(fd, F_SETFL, O_APPEND)); break;
    default: say("no append", slot, fcntl(fd, F_SETFL, 0));
    }
}

static void copies(int slot, int fd) {
    int to = (int)below(FDS);
    if (to == slot || fds[slot] < 0)
        return;
    if (fds[to] >= 0 && below(2)) {
        say("dup2", to, dup2(fd, fds[to]) == fds[to]);
        return;
    }
    shut(to);
    fds[to] = below(2) ? dup(fd) : fcntl(fd, F_DUPFD_CLOEXEC, 20);
    printf("dup %d to %d: %d\n", slot, to, fds[to] >= 0);
}

static void kernels(int slot, int fd) {
    int to = fds[below(FDS)];
    off_t at = below(4000), into = below(4000);
    size_t len = below(3000);
    switch (below(3)) {
    case 0: say("sendfile", slot, sendfile(to, fd, below(2) ? &at : NULL, len)); break;
    case 1: say("copy_file_range", slot, copy_file_range(fd, below(2) ? &at : NULL, to, below(2) ? &into : NULL, len, 0)); break;
    default: {
        struct stat one;
        char *map;
        int writes = (int)below(2);
        if (fstat(fd, &one) || one.st_size == 0)
            return;
        map = mmap(NULL, (size_t)one.st_size, PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            return say("mmap", slot, -1);
        printf("mapped %d: %08x\n", slot, hash(map, one.st_size));
        if (writes)
            map[below((uint32_t)one.st_size)] = 'M';
        munmap(map, (size_t)one.st_size);
    }
    }
}

/* Memory that is not there, descriptors that are not there. */
static void wrong(int slot, int fd) {
    struct iovec one[2] = {{buffer, 10}, {(void *)8, 10}};
    fill(10);
    switch (below(7)) {
    case 0: say("bad read", slot, read(fd, (void *)8, 10)); break;
    case 1: say("bad write", slot, write(fd, (void *)8, 10)); break;
    case 2: say("bad pieces", slot, writev(fd, (void *)8, 2)); break;
    case 3: say("part", slot, pwritev(fd, one, 2, 50)); break;
    case 4: say("too many", slot, readv(fd, pieces, 1025)); break;
    case 5: say("no descriptor", slot, write(999, buffer, 10)); break;
    default: say("negative", slot, pread(fd, buffer, 10, -7));
    }
}

/* Another process moves the offset of the same open file. */
static void children(int slot, int fd) {
    int status = 0;
    fflush(stdout);
    pid_t child = below(2) ? fork() : -1;
    if (child == 0) {
        fill(30);
        ssize_t n = write(fd, buffer, 30);
        lseek(fd, 5, SEEK_CUR);
        n += read(fd, buffer, 7);
        _exit(n < 0 ? 100 : (int)n);
    }
    if (child < 0) {
        char number[20], *words[] = {own, "child", number, NULL};
        snprintf(number, sizeof number, "%d", fd);
        if (below(2)) {
            if (posix_spawn(&child, own, NULL, NULL, words, environ))
                return say("spawn", slot, -1);
        } else if ((child = vfork()) == 0) {
            execv(own, words);
            _exit(9);
        }
    }
    waitpid(child, &status, 0);
    printf("child %d: %d\n", slot, WEXITSTATUS(status));
}

static void passes(int slot, int fd) {
    int pair[2], got;
    char byte = 'x', control[CMSG_SPACE(sizeof(int))];
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (fd < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(pair[0], &message, 0) == 1 && recvmsg(pair[1], &message, 0) == 1) {
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
        fill(11);
        say("passed", slot, write(got, buffer, 11));
        close(got);
    }
    close(pair[0]), close(pair[1]);
}

static int child(int fd) {
    ssize_t n = write(fd, "from another program", 20);
    fsync(fd), fsync(fd), fsync(fd), fsync(fd);
    n += write(fd, "again", 5);
    return n < 0 ? 101 : (int)n;
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "child"))
        return child(atoi(words[2]));
    if (count != 4)
        return 2;
    own = realpath(words[0], NULL);
    calm = atoi(words[2]) % 2;
    state = strtoull(words[2], NULL, 10) * 0x9E3779B97F4A7C15u + 1;
    if (chdir(words[1]))
        return 3;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    memset(fds, -1, sizeof fds);
    memset(other, 0, sizeof other);
    for (long n = atol(words[3]); n > 0; n--) {
        int slot = (int)below(FDS), fd = fds[slot];
        uint32_t what = below(calm ? 908 : 1000);
        errno = 4711;
        if (below(5) == 0)
            flows(slot);
        else if (fd < 0 && what % 16)
            opens(slot);
        else if (what < 2)
            opens(slot);
        else if (what < 330)
            writes(slot, fd);
        else if (what < 560)
            syncs(slot, fd);
        else if (what < 740)
            reads(slot, fd);
        else if (what < 830)
            seeks(slot, fd);
        else if (what < 905)
            looks(slot, fd);
        else if (what < 908)
            opens(slot);
        else if (what < 930)
            changes(slot, fd);
        else if (what < 950)
            copies(slot, fd);
        else if (what < 958)
            kernels(slot, fd);
        else if (what < 988)
            wrong(slot, fd);
        else if (what < 994)
            children(slot, fd);
        else if (what < 997)
            passes(slot, fd);
        else
            shut(slot);
    }
    fflush(stdout);
    return 0;
}
