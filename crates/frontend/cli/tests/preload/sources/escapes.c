/* Calls that go past the C library, on FILE: known numbers of them, from a thread, a child of fork(2), a program that was
 * started, a handler of a signal, and with all signals blocked. `escapes FILE`. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd;
static volatile int handled;

static void past(long number, const char *text) {
    if (syscall(number, fd, text, strlen(text), 0) < 0)
        _exit(1);
}

static void handler(int signal) {
    (void)signal;
    past(SYS_pwrite64, "handler");
    handled++;
}

static void *thread(void *argument) {
    past(SYS_pwrite64, argument);
    return NULL;
}

int main(int count, char **words) {
    pthread_t other;
    sigset_t all, before, now;
    int status = 0;
    if (count == 3) {
        fd = atoi(words[2]), past(SYS_pwrite64, "program");
        return 0;
    }
    /* What is seen: by its name, by a stream. */
    fd = open(words[1], O_RDWR | O_CREAT, 0644);
    FILE *stream = fdopen(dup(fd), "r+");
    if (write(fd, "seen", 4) != 4 || fsync(fd) || fputs("seen", stream) < 0 || fflush(stream) || lseek(fd, 0, SEEK_SET))
        return 2;
    /* 3 of write, 1 of openat, 1 of close. */
    for (int i = 0; i < 3; i++)
        past(SYS_write, "past");
    int again = (int)syscall(SYS_openat, AT_FDCWD, words[1], O_RDONLY);
    if (again < 0 || syscall(SYS_close, again) || syscall(SYS_close, again) == 0)
        return 3;
    /* 1 of pwrite64 each, but for the handler, which comes before raise(3) returns. */
    pthread_create(&other, NULL, thread, "thread"), pthread_join(other, NULL);
    if (fork() == 0)
        past(SYS_pwrite64, "child"), _exit(0);
    wait(&status);
    char number[20], *start[] = {words[0], words[1], number, NULL};
    snprintf(number, sizeof number, "%d", fd);
    if (vfork() == 0)
        execv(words[0], start), _exit(9);
    wait(&status);
    struct sigaction action = {.sa_handler = handler};
    sigfillset(&action.sa_mask), sigaction(SIGUSR1, &action, NULL), raise(SIGUSR1);
    sigfillset(&all), sigprocmask(SIG_SETMASK, &all, &before);
    past(SYS_pwrite64, "blocked");
    raise(SIGUSR1);
    if (handled != 1 || status)
        return 4;
    /* 1 of pwrite64, in the handler, when the signal is let through. */
    sigprocmask(SIG_SETMASK, &before, &now);
    if (handled != 2 || !sigismember(&now, SIGUSR1) || sigismember(&before, SIGUSR1))
        return 5;
    /* 1 of fsync; none on a file that is not the mount's. */
    past(SYS_fsync, ""), fd = open("/dev/null", O_WRONLY), past(SYS_write, "nowhere");
    return fclose(stream) ? 6 : 0;
}
