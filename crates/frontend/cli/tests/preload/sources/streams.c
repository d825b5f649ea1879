/* Streams of the C library, each step with what it answered. `streams loop FILE COUNT` writes by one stream and makes it
 * durable; `streams steps DIR` says the same with and without a library in between, and leaves the same files. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
static FILE *report;

static void say(const char *what, long result) {
    fprintf(report, "%s: %ld %s\n", what, result, result < 0 ? strerror(errno) : "");
    fflush(report);
}

static int loop(const char *path, int count) {
    FILE *stream = fopen(path, "w");
    for (int i = 0; i < count; i++)
        if (fprintf(stream, "line %08d\n", i) != 14 || fflush(stream) || fsync(fileno(stream)))
            return 1;
    return fclose(stream) ? 2 : 0;
}

/* A descriptor whose file is leased, if anything is. */
static int known(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    for (int i = 0; i < 5; i++)
        if (write(fd, "0123456789", 10) != 10 || fsync(fd))
            _exit(9);
    return fd;
}

/* Writes and syncs, so that the file is leased again. */
static void again(int fd) {
    for (int i = 0; i < 3; i++)
        say("write", write(fd, "again", 5)), say("sync", fsync(fd));
}

/* A stream of a known descriptor; then its number is another file's. */
static void numbers(void) {
    int fd = known("known");
    FILE *stream = fdopen(fd, "r+");
    say("at", ftell(stream));
    say("put", fputs("by stream", stream)), say("flush", fflush(stream)), say("sync", fsync(fd));
    say("write", write(fd, "by number", 9)), say("seek", fseek(stream, 45, SEEK_SET));
    char text[100] = "";
    say("read", (long)fread(text, 1, 23, stream)), fprintf(report, "%s\n", text);
    fd = dup(fd);
    say("close", fclose(stream)), again(fd);
    stream = fopen("other", "w+");
    say("write", write(fileno(stream), "other ", 6)), say("sync", fsync(fileno(stream)));
    say("write", write(fd, "known", 5)), say("sync", fsync(fd)), say("close", close(fd));
    say("put", fputs("stream", stream)), say("close", fclose(stream));
}

/* A stream that is opened anew keeps its number; only the kernel knows that it is another file. */
static void anew(void) {
    int fd = known("first"), other = known("second");
    say("number", dup2(fd, 60));
    FILE *stream = fdopen(60, "r+");
    say("put", fputs("to the first", stream));
    stream = freopen("third", "w+", stream);
    say("number", fileno(stream));
    say("write", write(60, "to the third", 12)), say("sync", fsync(60)), say("put", fputs(" and more", stream));
    say("flush", fflush(stream)), say("sync", fsync(60)), say("size", lseek(60, 0, SEEK_END));
    say("number", dup2(other, 60));
    say("put", fputs("to the second", stream)), say("close", fclose(stream));
    for (int i = 0; i < 10; i++) {
        struct stat now;
        FILE *appends = fopen("first", "a");
        fputs("appended at last", appends), again(fd);
        say("anew", fclose(freopen("third", "r", appends))), fstat(fd, &now), say("size", now.st_size);
    }
    say("none", freopen("nowhere/file", "r", fopen("third", "r")) == NULL);
    say("write", write(fd, "end", 3)), say("sync", fsync(fd)), say("close", close(fd)), say("close", close(other));
}

static void children(void) {
    FILE *stream = fopen("family", "w+e"), *pipe;
    char line[100] = "";
    for (int i = 0; i < 5; i++)
        fprintf(stream, "parent %d\n", i), fflush(stream), fsync(fileno(stream));
    if (fork() == 0) {
        fputs("child\n", stream);
        _exit(fclose(stream) ? 1 : 0);
    }
    int status = 0;
    wait(&status), say("child", status);
    say("put", fputs("after the child\n", stream)), say("flush", fflush(stream)), say("sync", fsync(fileno(stream)));
    pipe = popen("cat >>family; echo done", "w");
    say("put", fputs("by a pipe\n", pipe)), say("close", pclose(pipe));
    pipe = popen("cat family", "r");
    while (fgets(line, sizeof line, pipe))
        fprintf(report, "%s", line);
    say("close", pclose(pipe)), say("system", system("wc -c <family >count"));
    say("put", fputs("over it\n", stream)), say("close", fclose(stream));
}

static void appends(void) {
    FILE *one = fopen("appended", "a"), *other = fopen("appended", "a+");
    for (int i = 0; i < 20; i++) {
        fprintf(i % 2 ? one : other, "line %d\n", i);
        say("flush", fflush(i % 2 ? one : other)), say("sync", fsync(fileno(one)));
        say("at", ftell(one)), say("at", ftell(other));
    }
    rewind(other);
    say("character", getc(other)), say("close", fclose(one)), say("close", fclose(other));
    say("left", fputs("never flushed", fopen("left", "w")));
}

static FILE *shared;

static void *lines(void *argument) {
    for (int i = 0; i < 200; i++) {
        fprintf(shared, "%ld %06d\n", (long)argument, i);
        if (i % 5 == 0 && (fflush(shared) || fsync(fileno(shared))))
            _exit(8);
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[THREADS];
    shared = fopen("shared", "w");
    for (long i = 0; i < THREADS; i++)
        pthread_create(all + i, NULL, lines, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
    say("close", fclose(shared));
    /* Their order is not to be told. */
    say("sort", system("sort shared >sorted && rm shared"));
}

static FILE *pipes[2];

static void *waits(void *argument) {
    char line[10];
    (void)argument;
    fgets(line, sizeof line, pipes[0]);
    return NULL;
}

/* A thread is cancelled where a stream waits, and leaves the stream unlocked. */
static void cancelled(void) {
    int ends[2];
    pthread_t thread;
    void *result;
    if (pipe(ends))
        _exit(7);
    pipes[0] = fdopen(ends[0], "r"), pipes[1] = fdopen(ends[1], "w");
    pthread_create(&thread, NULL, waits, NULL);
    usleep(50000);
    say("cancel", pthread_cancel(thread)), pthread_join(thread, &result);
    say("cancelled", result == PTHREAD_CANCELED), say("free", ftrylockfile(pipes[0]));
    fputs("a line\n", pipes[1]), fflush(pipes[1]);
    say("character", getc(pipes[0])), say("seek", fseek(pipes[1], 0, SEEK_SET));
    fclose(pipes[0]);
    signal(SIGPIPE, SIG_IGN);
    fputs("nobody reads\n", pipes[1]), say("flush", fflush(pipes[1])), say("close", fclose(pipes[1]));
}

static void errors(void) {
    FILE *stream = fopen("first", "r");
    errno = 0, say("none", fopen("nowhere", "r") ? 1 : -1);
    errno = 0, say("directory", fopen(".", "w") ? 1 : -1);
    errno = 0, say("read only", fputs("x", stream));
    errno = 0, say("closed", close(fileno(stream)));
    errno = 0, say("character", getc(stream)), say("close", fclose(stream));
    errno = 4711, say("kept", fclose(fopen("first", "r+"))), say("errno", errno);
}

/* The standard output goes, and its number is another file's. */
static void output(void) {
    int fd = known("output");
    fflush(stdout);
    say("number", dup2(fd, 1)), say("print", printf("printed\n")), say("flush", fflush(stdout));
    say("sync", fsync(1)), say("close", fclose(stdout)), again(fd);
    FILE *stream = fopen("instead", "w");
    say("number", fileno(stream)), say("write", write(fileno(stream), "instead", 7));
    say("sync", fsync(fileno(stream))), say("close", fclose(stream));
    say("write", write(fd, "end", 3)), say("sync", fsync(fd)), say("close", close(fd));
}

int main(int count, char **words) {
    if (count == 4 && !strcmp(words[1], "loop"))
        return loop(words[2], atoi(words[3]));
    if (count != 3 || chdir(words[2]))
        return 3;
    report = fdopen(dup(1), "w");
    void (*const steps[])(void) = {numbers, anew, children, appends, threads, cancelled, errors, output};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        fprintf(report, "step %zu\n", i), fflush(report), steps[i]();
    return 0;
}
