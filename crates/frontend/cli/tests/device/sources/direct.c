// A program that knows nothing of SiftFS: it does what each line of its input says to one file, and
// says what came of it.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd, other = -1;
static const char *path;
static char *bytes;

static void say(long done)
{
    if (done < 0)
        printf("errno %d\n", errno);
    else
        printf("%ld\n", done);
    fflush(stdout);
}

// What there is: a byte if all are the same, else how many there are.
static void told(long len)
{
    long same = 1;
    while (same < len && bytes[same] == bytes[0])
        same++;
    if (len < 0)
        say(len);
    else if (len == 0)
        printf("nothing\n");
    else if (same >= len)
        printf("%ld of %d\n", len, bytes[0]);
    else
        printf("%ld, %ld of %d\n", len, same, bytes[0]);
    fflush(stdout);
}

static volatile int caught;

static void handler(int number)
{
    (void)number;
    caught++;
}

// Whether the program takes the signal. Another thread would, if there were one.
static long masked(int how)
{
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    return pthread_sigmask(how ? SIG_BLOCK : SIG_UNBLOCK, &usr1, NULL);
}

static void *appends(void *byte)
{
    char piece[3000];
    memset(piece, *(char *)byte, sizeof piece);
    for (int i = 0; i < 50; i++)
        if (write(fd, piece, sizeof piece) != sizeof piece)
            abort();
    return NULL;
}

static long threads(void)
{
    pthread_t all[4];
    char names[4] = {11, 12, 13, 14};
    for (int i = 0; i < 4; i++)
        if (pthread_create(&all[i], NULL, appends, &names[i]))
            return -1;
    for (int i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
    return 4;
}

// The child writes by the descriptor that it has from its parent.
static long forked(long at, int byte)
{
    pid_t child = fork();
    if (child == 0) {
        for (int other = 512; other < 2000; other++)
            if (fcntl(other, F_GETFD) >= 0)
                _exit(2);
        memset(bytes, byte, 4096);
        _exit(pwrite(fd, bytes, 4096, at) == 4096 && fdatasync(fd) == 0 ? 0 : 1);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static long mapped(long at, int byte)
{
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
    if (map == MAP_FAILED)
        return -1;
    int before = map[0];
    memset(map, byte, 4096);
    msync(map, 4096, MS_SYNC);
    munmap(map, 4096);
    return before;
}

// A child that does nothing by what it has from its parent.
static long child(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return child < 0 || waitpid(child, &status, 0) != child ? -1 : status;
}

// Atomic sections, as SQLite has them of F2FS.
static int section(const char *what)
{
    if (!strcmp(what, "start"))
        say(ioctl(fd, 0xf501));
    else if (!strcmp(what, "commit"))
        say(ioctl(fd, 0xf502));
    else if (!strcmp(what, "abort"))
        say(ioctl(fd, 0xf505));
    else
        return 0;
    return 1;
}

// The same by a second descriptor.
static int second(const char *what, long a, long b, long c)
{
    if (!strcmp(what, "second"))
        say((other = open(path, O_RDWR)) < 0 ? -1 : 0);
    else if (!strcmp(what, "write2"))
        memset(bytes, (int)c, b), say(pwrite(other, bytes, b, a));
    else if (!strcmp(what, "read2"))
        told(pread(other, bytes, b, a));
    else if (!strcmp(what, "start2"))
        say(ioctl(other, 0xf501));
    else if (!strcmp(what, "commit2"))
        say(ioctl(other, 0xf502));
    else if (!strcmp(what, "close2"))
        say(close(other));
    else
        return 0;
    return 1;
}

static int opened(int flags)
{
    if (fd > 0)
        close(fd);
    fd = open(path, flags | O_CREAT, 0644);
    return fd < 0 ? -1 : 0;
}

static void work(const char *what, long a, long b, long c)
{
    struct stat stat;
    if (section(what) || second(what, a, b, c))
        return;
    if (!strcmp(what, "write"))
        memset(bytes, (int)c, b), say(pwrite(fd, bytes, b, a));
    else if (!strcmp(what, "read"))
        told(pread(fd, bytes, b, a));
    else if (!strcmp(what, "append"))
        memset(bytes, (int)b, a), say(write(fd, bytes, a));
    else if (!strcmp(what, "next"))
        told(read(fd, bytes, a));
    else if (!strcmp(what, "seek"))
        say(lseek(fd, a, SEEK_SET));
    else if (!strcmp(what, "end"))
        say(lseek(fd, 0, SEEK_END));
    else if (!strcmp(what, "datasync"))
        say(fdatasync(fd));
    else if (!strcmp(what, "sync"))
        say(fsync(fd));
    else if (!strcmp(what, "stat"))
        say(fstat(fd, &stat) ? -1 : stat.st_size);
    else if (!strcmp(what, "truncate"))
        say(ftruncate(fd, a));
    else if (!strcmp(what, "fork"))
        say(forked(a, (int)b));
    else if (!strcmp(what, "child"))
        say(child());
    else if (!strcmp(what, "exec")) {
        execl("/proc/self/exe", "direct", path, "again", NULL);
        say(-1);
    } else if (!strcmp(what, "here"))
        memset(bytes, (int)b, a), say(write(fd, bytes, a));
    else if (!strcmp(what, "map"))
        say(mapped(a, (int)b));
    else if (!strcmp(what, "threads"))
        say(threads());
    else if (!strcmp(what, "dup"))
        say(dup2(fd, 40) == 40 && close(fd) == 0 ? (fd = 40) : -1);
    else if (!strcmp(what, "closeall")) {
        // How many there were where nothing is opened but by the library.
        long closed = 0;
        for (int other = 3; other < 2000; other++)
            if (other != fd && close(other) == 0)
                closed += other >= 512;
        say(closed);
    } else if (!strcmp(what, "appending"))
        say(opened(O_WRONLY | O_APPEND));
    else if (!strcmp(what, "plain"))
        say(opened(O_RDWR));
    else if (!strcmp(what, "mask"))
        say(masked((int)a));
    else if (!strcmp(what, "caught"))
        say(caught);
    else
        printf("what is %s?\n", what), fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[256], what[32];
    long a, b, c;
    if (argc < 2 || !(bytes = malloc(8 << 20)))
        return 2;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    path = argv[1];
    if (opened(O_RDWR))
        return 3;
    // It is there in its own place.
    if (argc > 2)
        say(0);
    while (fgets(line, sizeof line, stdin)) {
        a = b = c = 0;
        if (sscanf(line, "%31s %ld %ld %ld", what, &a, &b, &c) < 1)
            return 4;
        work(what, a, b, c);
    }
    return 0;
}
