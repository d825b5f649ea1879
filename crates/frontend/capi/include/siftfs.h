/* SiftFS for C: what a program may ask of a mounted volume besides POSIX, and volumes that are
 * opened in the process, without a mount.
 *
 * Errors: a function that fails returns -1, or NULL, and sets errno. Nothing has changed then,
 * unless its comment says otherwise. ENOTTY: the file is not on a SiftFS mount. EINVAL, too, for a
 * null pointer where none is allowed. EIO: the storage failed, and nothing more is promised.
 *
 * Rights: on a mount none but those of the file and of the caller. A volume is opened with the
 * rights to its file or block device, and everything in it is the caller's.
 *
 * Threads: every function may be called from several threads at once, also on the same descriptor,
 * volume, file or section, but not on the same compound. What a function closes or ends must not be
 * in use by another thread.
 *
 * Ownership: the library keeps no pointer of the caller's after a call, but a callback and its
 * context until it was called. What siftfs_volume_open, siftfs_open and siftfs_section_start return
 * belongs to the caller, who gives it back with siftfs_volume_close, siftfs_close, and
 * siftfs_section_commit or siftfs_section_abort: sections and files before their volume.
 *
 * siftfs(3) has the same by function and with examples; docs/design/operations.md says what each
 * call promises after a crash. */

#ifndef SIFTFS_H
#define SIFTFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How far a publish is when its call returns. */
enum siftfs_level {
    SIFTFS_VISIBLE = 0, /* others see all of it; a crash shows all or nothing */
    SIFTFS_ATOMIC = 1,  /* and nothing that is made durable later survives a crash without it */
    SIFTFS_DURABLE = 2  /* all of it is durable, data included */
};

/* siftfs_name.flags: the new name may be another file's, which loses it. */
#define SIFTFS_REPLACE 1u

/* One name of a publish. Paths have no ".." and are not followed through symbolic links. */
struct siftfs_name {
    const char *from; /* the file that this path names; it loses the name. NULL: from_fd */
    int from_fd;      /* a file that is open for writing, with or without a name */
    const char *to;   /* its new name */
    unsigned flags;
};

/* Gives files new names, all of them or none. Paths begin at the directory dirfd, which is open on
 * the mount. 0, or -1: ENOENT, EEXIST, EISDIR, EACCES, EPERM, ENOSPC as rename(2); EINVAL a name is
 * used twice; E2BIG more than one record takes; EAGAIN directories above are moved all the time. */
int siftfs_publish(int dirfd, const struct siftfs_name *names, size_t count,
                   enum siftfs_level level);

/* A ticket: a position in the order of what is staged. It is durable once everything up to there
 * is, and stays so. It needs no memory and no end: forgotten, it becomes durable all the same. It
 * means something on the mount, or in the volume, that gave it, until that is closed. */
typedef uint64_t siftfs_ticket;

/* Stages what fsync(2) of fd, a file or directory, would make durable, without a wait for storage.
 * What is staged later never survives a crash without it. 0, or -1: EAGAIN when 65,536 tickets are
 * not durable yet; as fsync(2). */
int siftfs_stage(int fd, siftfs_ticket *ticket);

/* A ticket of everything staged so far on the mount of fd, any open file or directory of it. */
int siftfs_barrier(int fd, siftfs_ticket *ticket);

/* 1 if the ticket is durable; 0 if it is not: it will be within milliseconds, as fast as the
 * storage takes it, so a program may ask again and again. -1: EINVAL if the mount of fd, any open
 * file or directory of it, did not give the ticket; EIO it never will be durable. */
int siftfs_poll(int fd, siftfs_ticket ticket);

/* Returns 0 when the ticket is durable, or -1: as siftfs_poll; ETIMEDOUT after so many nanoseconds
 * (negative: it waits as long as it takes); EAGAIN if 1,024 waits with a time are under way. */
int siftfs_wait(int fd, siftfs_ticket ticket, int64_t nanoseconds);

/* Starts an atomic section of a file that the caller owns, and has open to read and write as fd:
 * what is written through fd from now on becomes the file's with siftfs_atomic_commit, all of it
 * or nothing, also after a crash. It ends without a trace with siftfs_atomic_abort, with the
 * process, and with a close(2) of any descriptor of the file by this process, as POSIX locks do. 0,
 * or -1: EBADF, EACCES, EBUSY the file has a section, EMFILE the mount has 1,024, EROFS. */
int siftfs_atomic_start(int fd);

/* Everything written in the section is the file's, and durable, when this returns 0. -1: ECANCELED
 * another program changed the same bytes, or the file's size; EFBIG more than a record takes;
 * ENOSPC; EAGAIN. Nothing of it is the file's then, and the section goes on, to be aborted or
 * committed again. EINVAL: there is no section. */
int siftfs_atomic_commit(int fd);

/* As siftfs_atomic_commit, for the sections of several files of one mount: all of them or none, the
 * sections that this process started. SIFTFS_DURABLE is as there; with SIFTFS_ATOMIC the call does
 * not wait for storage, and nothing that is made durable later survives a crash without them
 * (SIFTFS_VISIBLE is the same here). -1, too: EBADF a descriptor is not open to read and write;
 * EXDEV a file of another mount; EINVAL none, or a file twice. */
int siftfs_atomic_commit_all(const int *fds, size_t count, enum siftfs_level level);

/* Ends the section; nothing that was written in it was ever the file's. */
int siftfs_atomic_abort(int fd);

/* A compound: a list of steps on a mount that change all they change together, also after a crash,
 * or nothing. It is made step by step, carried out, asked for results, and freed by the caller, by
 * one thread at a time. Steps and results take 16,383 bytes each at most. */
typedef struct siftfs_compound siftfs_compound;

/* A file: a descriptor, which may be used as it was opened (not to write at a place with O_APPEND),
 * or what an earlier step found: SIFTFS_STEP of its number. */
#define SIFTFS_STEP(number) (-1 - (number))

/* A number: a value, or (step from 0 on) a step's: its number, or how many bytes it has. */
struct siftfs_number {
    uint64_t value;
    int step; /* -1: value */
};

/* Bytes: some, or (step from 0 on) `length` of a step's result from byte `start` on: all of them
 * with start 0 and length SIZE_MAX. A number's bytes are little endian. */
struct siftfs_bytes {
    const void *data; /* only read by the call that it is given to */
    size_t length;
    int step; /* -1: data */
    size_t start;
};

/* The fields of siftfs_attributes that count. */
#define SIFTFS_SET_MODE 1u
#define SIFTFS_SET_UID 2u
#define SIFTFS_SET_GID 4u
#define SIFTFS_SET_ATIME 8u
#define SIFTFS_SET_MTIME 16u

/* New attributes. A time whose tv_nsec is UTIME_NOW is the present. */
struct siftfs_attributes {
    unsigned which;
    mode_t mode;
    uid_t uid;
    gid_t gid;
    struct timespec atime, mtime;
};

/* Checksums, of 4, 4 and 8 bytes: CRC-32C, the same as RocksDB masks it, XXH3. Formats: a frame. */
enum siftfs_checksum { SIFTFS_CRC32C = 0, SIFTFS_MASKED_CRC32C = 1, SIFTFS_XXH3 = 2 };
enum siftfs_format { SIFTFS_LZ4 = 0, SIFTFS_ZSTD = 1 };

/* An empty list; and its end. NULL is none. */
siftfs_compound *siftfs_compound_new(void);
void siftfs_compound_free(siftfs_compound *compound);

/* Each adds a step and returns its number, from 0, or -1. Paths are relative to the directory that
 * siftfs_compound_run is given. The results of the first three are files. open's flags: O_RDONLY,
 * O_WRONLY or O_RDWR, perhaps with O_TRUNC; create's path must not be there. What steps open is
 * closed with the compound, or by close: no step uses it from there on. */
int siftfs_compound_lookup(siftfs_compound *compound, const char *path);
int siftfs_compound_open(siftfs_compound *compound, const char *path, int flags);
int siftfs_compound_create(siftfs_compound *compound, const char *path, mode_t mode);
int siftfs_compound_close(siftfs_compound *compound, int step);

/* Bytes: read, fewer than length only at the end of the file; compressed; decompressed, EOVERFLOW
 * if they are more than `most`; two, joined; and those in whose place patch puts as many. */
int siftfs_compound_read(siftfs_compound *compound, int file, struct siftfs_number offset,
                         uint32_t length);
int siftfs_compound_compress(siftfs_compound *compound, enum siftfs_format format,
                             struct siftfs_bytes data);
int siftfs_compound_decompress(siftfs_compound *compound, enum siftfs_format format,
                               struct siftfs_bytes data, uint32_t most);
int siftfs_compound_join(siftfs_compound *compound, struct siftfs_bytes first,
                         struct siftfs_bytes second);
int siftfs_compound_patch(siftfs_compound *compound, int file, struct siftfs_number offset,
                          struct siftfs_bytes data);

/* Numbers: of bytes written; of the byte where they were appended; a checksum; and what was there
 * before add added to a little-endian number of 4 or 8 bytes. */
int siftfs_compound_write(siftfs_compound *compound, int file, struct siftfs_number offset,
                          struct siftfs_bytes data);
int siftfs_compound_append(siftfs_compound *compound, int file, struct siftfs_bytes data);
int siftfs_compound_checksum(siftfs_compound *compound, enum siftfs_checksum kind,
                             struct siftfs_bytes data);
int siftfs_compound_add(siftfs_compound *compound, int file, struct siftfs_number offset, int width,
                        struct siftfs_number addend);

/* No result. compare_and_set: ECANCELED if others are there. rename's flags: SIFTFS_REPLACE. */
int siftfs_compound_compare_and_set(siftfs_compound *compound, int file,
                                    struct siftfs_number offset, struct siftfs_bytes expected,
                                    struct siftfs_bytes wanted);
int siftfs_compound_rename(siftfs_compound *compound, const char *from, const char *to,
                           unsigned flags);
int siftfs_compound_link(siftfs_compound *compound, int file, const char *to);
int siftfs_compound_unlink(siftfs_compound *compound, const char *path);
int siftfs_compound_set_size(siftfs_compound *compound, int file, struct siftfs_number size);
int siftfs_compound_set_attributes(siftfs_compound *compound, int file,
                                   const struct siftfs_attributes *set);

/* Has the next run bring the result of this step. */
int siftfs_compound_want(siftfs_compound *compound, int step);

/* Carries the steps out on the directory dirfd of a mount. 0, or -1: why a step is refused, whose
 * number siftfs_compound_refused has then; EINVAL no step, or a result that is not there yet;
 * EMSGSIZE, E2BIG results or steps that are too long; EAGAIN. It may be run again, and with more
 * steps. */
int siftfs_compound_run(siftfs_compound *compound, int dirfd, enum siftfs_level level);

/* The step that the last run was refused for; -1 if it was not a step. */
int siftfs_compound_refused(const siftfs_compound *compound);

/* Results of the last run that were wanted: bytes, which stay until the next run or the end, and a
 * number or that of a file's inode. NULL and -1: EINVAL there is none. */
const void *siftfs_compound_bytes(const siftfs_compound *compound, int step, size_t *length);
int siftfs_compound_number(const siftfs_compound *compound, int step, uint64_t *number);

/* A volume that is opened in this process, a regular file in it, and a section of such a file. */
typedef struct siftfs_volume siftfs_volume;
typedef struct siftfs_file siftfs_file;
typedef struct siftfs_section siftfs_section;

/* As siftfs_compound_run, in the volume; paths begin at its root. In a step's place of a descriptor
 * stands a file's place in files, from 0; one that is not there is EBADF. */
int siftfs_compound_run_in(siftfs_compound *compound, siftfs_volume *volume,
                           siftfs_file *const *files, size_t count, enum siftfs_level level);

/* Opens the volume in a file or on a block device, exclusively, and recovers it first if it was
 * not closed. NULL: ENOENT; EBUSY another process has it, or it is no volume; EUCLEAN it is
 * damaged. */
siftfs_volume *siftfs_volume_open(const char *path);

/* Opens a session of a volume that `siftfs serve` serves at an address: "unix:PATH", or
 * "tcp:HOST:PORT" with the keys of this machine (siftfs(8), KEYS). The name, or NULL for the volume
 * that is served there, is its file's or its UUID. What follows is as on a volume of this process;
 * siftfs_volume_close ends the session. NULL: ECONNREFUSED no server listens there, or it does not
 * admit this process; siftfs_volume_message says which.
 *
 * If the server dies or ends, or the connection breaks, calls wait until it is there again, and go
 * on: files stay open, and siftfs_fsync covers what was written before. What cannot be repeated is
 * EIO at the file's next siftfs_fsync, or ESTALE. Tickets and sections of a server that is gone are
 * EIO, and so is siftfs_fsync of a file that a compound had changed, if that was only
 * SIFTFS_VISIBLE and is not durable. */
siftfs_volume *siftfs_volume_connect(const char *address, const char *name);

/* As siftfs_volume_connect, with options that are named as those of a mount: "hard", the default;
 * "soft", with which calls that have waited for the server for 60 seconds are EIO, or for
 * "soft,timeo=SECONDS"; and "once": the session ends with its server or connection, and every call
 * is EIO from then on. NULL is "". ECONNREFUSED for other options, too. */
siftfs_volume *siftfs_volume_connect_with(const char *address, const char *name,
                                          const char *options);

/* Why this thread's last siftfs_volume_open or siftfs_volume_connect failed, in words for people.
 * It stays until the thread's next one fails. */
const char *siftfs_volume_message(void);

/* Brings everything into the ext4 area and closes. The volume is gone whatever the result is; -1 if
 * it is not plain ext4 now: the next open recovers what was durable. One that is served stays as it
 * is, and the session ends; what it has changed is durable then. -1: EIO, it may not be. */
int siftfs_volume_close(siftfs_volume *volume);

/* Everything that was done before is durable on return, as sync(2). */
int siftfs_volume_sync(siftfs_volume *volume);

/* Opens a regular file for reading and writing, by its absolute path; creates it with this mode if
 * flags has O_CREAT, and it must not be there then. No other flag is known: EINVAL. */
siftfs_file *siftfs_open(siftfs_volume *volume, const char *path, int flags, mode_t mode);

/* Opens a file that is there, and reads up to `length` bytes from `offset` on, as one compound:
 * *count of them, fewer only at the end of the file. NULL: as siftfs_open; E2BIG more than a
 * compound brings (16 MiB at most). */
siftfs_file *siftfs_open_read(siftfs_volume *volume, const char *path, void *into, size_t length,
                              uint64_t offset, size_t *count);

/* Closes a file. It promises nothing about its bytes. */
void siftfs_close(siftfs_file *file);

/* Writes all bytes and closes the file, as one compound. The file is closed whatever the result is;
 * -1: nothing was written. E2BIG, too: more than a record takes. Not durable by itself. */
int siftfs_write_close(siftfs_volume *volume, siftfs_file *file, const void *from, size_t length,
                       uint64_t offset);

/* As pread(2) and pwrite(2), but writes all bytes or fails. */
ssize_t siftfs_pread(siftfs_file *file, void *into, size_t length, uint64_t offset);
ssize_t siftfs_pwrite(siftfs_file *file, const void *from, size_t length, uint64_t offset);

/* As fstat(2) and ftruncate(2). st_dev is 0. A size is durable with the file's next sync. */
int siftfs_fstat(siftfs_file *file, struct stat *into);
int siftfs_ftruncate(siftfs_file *file, uint64_t size);

/* As fsync(2) and fdatasync(2): one write and one flush where that is possible. */
int siftfs_fsync(siftfs_file *file);
int siftfs_fdatasync(siftfs_file *file);

/* As flock(2): LOCK_SH, LOCK_EX or LOCK_UN, with LOCK_NB EWOULDBLOCK rather than a wait. The lock is
 * the open file's, and ends when it is closed. It is one with those of programs on a mount of the
 * volume, and of other sessions. */
int siftfs_flock(siftfs_file *file, int operation);

/* As the system calls of their names, with absolute paths that are not followed through symbolic
 * links: siftfs_stat is lstat(2). siftfs_rename takes directories, too; its flags: SIFTFS_REPLACE,
 * else a name that is there is EEXIST. A name is durable with the next sync of its file, or of the
 * directory by siftfs_sync_dir; that it is gone, with the latter. */
int siftfs_stat(siftfs_volume *volume, const char *path, struct stat *into);
int siftfs_mkdir(siftfs_volume *volume, const char *path, mode_t mode);
int siftfs_rmdir(siftfs_volume *volume, const char *path);
int siftfs_unlink(siftfs_volume *volume, const char *path);
int siftfs_link(siftfs_volume *volume, const char *existing, const char *to);
int siftfs_rename(siftfs_volume *volume, const char *from, const char *to, unsigned flags);
int siftfs_sync_dir(siftfs_volume *volume, const char *path);

/* What is called for an entry of a directory, on the caller's thread. The name is there for the
 * call alone; type is as d_type of readdir(3). */
typedef void siftfs_entry(void *context, const char *name, uint64_t inode, unsigned char type);

/* Has `then` called for each entry of a directory but "." and "..", in no order. It takes memory
 * for all of them first, so `then` may change the directory. */
int siftfs_list(siftfs_volume *volume, const char *path, siftfs_entry *then, void *context);

/* A session of a served volume whose storage a target has (siftfs(8)), and a file that is read and
 * written there, without the server in between, as long as nobody else uses it. What cannot go to
 * the target goes to the server, and both are one file. When the server or the connection is lost,
 * so are session and files: every call fails from then on. */
typedef struct siftfs_direct siftfs_direct;
typedef struct siftfs_direct_file siftfs_direct_file;

/* As siftfs_volume_connect; siftfs_volume_message says why not. It ends with siftfs_direct_disconnect,
 * when all its files are closed. */
siftfs_direct *siftfs_direct_connect(const char *address, const char *name);
void siftfs_direct_disconnect(siftfs_direct *direct);

/* The same session, for names and everything else but files that are open by the session
 * itself. It ends with the session, and must not be closed. */
siftfs_volume *siftfs_direct_volume(siftfs_direct *direct);

/* Opens a regular file by its absolute path. flags: O_RDWR; O_RDWR | O_CREAT, and it must not be
 * there then; O_RDONLY, to read it at the target beside other programs that read it. */
siftfs_direct_file *siftfs_direct_open(siftfs_direct *direct, const char *path, int flags,
                                       mode_t mode);

/* Closes a file. It promises nothing about its bytes. */
void siftfs_direct_close(siftfs_direct_file *file);

/* As pread(2) and pwrite(2), but writes all bytes or fails. If it is to be durable, it is so on
 * return, and nothing is said of other writes: one round trip. */
ssize_t siftfs_direct_pread(siftfs_direct_file *file, void *into, size_t length, uint64_t offset);
ssize_t siftfs_direct_pwrite(siftfs_direct_file *file, const void *from, size_t length,
                             uint64_t offset, int durable);

/* Bytes and their place in a file. */
struct siftfs_piece {
    const void *from;
    size_t length;
    uint64_t offset;
};

/* Writes all pieces, in their order, or nothing of them, whatever dies; durable on return. -1:
 * nothing of it is there, or EIO it is not known; EFBIG more than 16 MiB; ECANCELED others changed
 * the file meanwhile. One round trip for 256 KiB, where the volume has a redo lane (siftfs mkfs
 * --redo-lane). */
int siftfs_direct_write_together(siftfs_direct_file *file, const struct siftfs_piece *pieces,
                                 size_t count);

/* The size in bytes, and ftruncate(2). A size is durable with the next sync. */
int siftfs_direct_size(siftfs_direct_file *file, uint64_t *into);
int siftfs_direct_ftruncate(siftfs_direct_file *file, uint64_t size);

/* As fsync(2) and fdatasync(2). EIO, once: what was written may be lost. */
int siftfs_direct_fsync(siftfs_direct_file *file);
int siftfs_direct_fdatasync(siftfs_direct_file *file);

/* 1 if something of the file goes to the target now, 0 if all of it goes to the server. */
int siftfs_direct_is_direct(siftfs_direct_file *file);

/* As siftfs_publish, with absolute paths; from_fd is not used, and from must not be NULL. */
int siftfs_volume_publish(siftfs_volume *volume, const struct siftfs_name *names, size_t count,
                          enum siftfs_level level);

/* As siftfs_stage, siftfs_barrier, siftfs_poll and siftfs_wait, for a file of a volume in this
 * process. A flush that the waiting thread has begun itself is seen to its end, whatever the
 * time. */
int siftfs_file_stage(siftfs_file *file, siftfs_ticket *ticket);
int siftfs_volume_barrier(siftfs_volume *volume, siftfs_ticket *ticket);
int siftfs_volume_poll(siftfs_volume *volume, siftfs_ticket ticket);
int siftfs_volume_wait(siftfs_volume *volume, siftfs_ticket ticket, int64_t nanoseconds);

/* What is called once when a ticket is durable, with error 0, or never will be, with an errno. */
typedef void siftfs_callback(void *context, int error);

/* Has `then` called for a ticket, on the thread that sees to its durability: one that is flushing,
 * or this one, before the function returns. It may stage more, and must neither wait nor close the
 * volume. 0; or -1 for a null pointer, and then it is not called. */
int siftfs_volume_when_durable(siftfs_volume *volume, siftfs_ticket ticket, siftfs_callback *then,
                               void *context);

/* Starts an atomic section of a file: what is written into it becomes the file's with the commit,
 * all of it or nothing, also after a crash. Others, also siftfs_pread, see nothing of it before.
 * NULL: EBUSY the file has a section; EMFILE the volume has 1,024; ENOENT it was removed. */
siftfs_section *siftfs_section_start(siftfs_file *file);

/* As siftfs_pread and siftfs_pwrite, with what was written into the section over the file's bytes.
 * EFBIG: more than a record takes; what was written before stays. */
ssize_t siftfs_section_pread(siftfs_section *section, void *into, size_t length, uint64_t offset);
ssize_t siftfs_section_pwrite(siftfs_section *section, const void *from, size_t length,
                              uint64_t offset);

/* Commits sections, of one file each and all of one volume: all of them or none. With
 * SIFTFS_DURABLE they are durable on return, with SIFTFS_ATOMIC nothing that is made durable later
 * survives a crash without them (SIFTFS_VISIBLE is the same here). The sections are gone whatever
 * the result is, but for EINVAL: a null pointer, a section that is named twice, or no such level.
 * -1: as siftfs_atomic_commit; EXDEV they are of different volumes. */
int siftfs_section_commit(siftfs_section *const *sections, size_t count, enum siftfs_level level);

/* Ends a section without a trace. NULL is none. */
void siftfs_section_abort(siftfs_section *section);

#ifdef __cplusplus
}
#endif

#endif
