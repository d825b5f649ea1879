/* Threads that write lines of twelve bytes by one descriptor, and signals whose handler does so as well.
 * `threads FILE append|offset NAME LINES`. NAME is one letter. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 3
static int fd, lines;
static char name;
static atomic_int signalled, progress, running = THREADS;

static void put(char kind, int number) {
    char line[13] = {name, kind, ' '};
    for (int i = 10; i > 2; i--, number /= 10)
        line[i] = (char)('0' + number % 10);
    line[11] = '\n';
    if (write(fd, line, 12) != 12)
        _exit(1);
}

static void handler(int signal) {
    (void)signal;
    put('s', atomic_fetch_add(&signalled, 1));
}

static void *worker(void *argument) {
    for (int i = 0; i < lines; i++) {
        put((char)('0' + (int)(long)argument), i);
        atomic_fetch_add(&progress, 1);
        if (i % 5 == 0 && fdatasync(fd))
            _exit(2);
    }
    atomic_fetch_sub(&running, 1);
    /* Signals may still be sent to it. */
    while (atomic_load(&running) > -1)
        usleep(100);
    return NULL;
}

int main(int count, char **words) {
    pthread_t threads[THREADS];
    if (count != 5)
        return 9;
    name = *words[3], lines = atoi(words[4]);
    fd = open(words[1], O_WRONLY | O_CREAT | (strcmp(words[2], "append") ? 0 : O_APPEND), 0644);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    for (long i = 0; i < THREADS; i++)
        pthread_create(threads + i, NULL, worker, (void *)i);
    /* None at first; then one for each fifty lines. */
    for (int sent = 0, next = lines; atomic_load(&running) > 0; usleep(50)) {
        if (atomic_load(&progress) < next)
            continue;
        pthread_kill(threads[sent++ % THREADS], SIGUSR1);
        next += 50;
    }
    atomic_store(&running, -1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%d\n", atomic_load(&signalled));
    return close(fd) ? 3 : 0;
}
