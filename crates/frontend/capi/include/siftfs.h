/* SiftFS for C: what a program may ask of a mounted volume besides POSIX, and volumes that are
 * opened in the process, without a mount.
 *
 * Errors: a function that fails returns -1, or NULL, and sets errno. Nothing has changed then,
 * unless its comment says otherwise. ENOTTY: the file is not on a SiftFS mount. EINVAL, too, for a
 * null pointer where none is allowed.
 *
 * Threads: every function may be called from several threads at once, also on the same descriptor,
 * volume or file. A volume or file must not be closed while another thread uses it.
 *
 * Ownership: the library keeps no pointer of the caller's after a call. What siftfs_volume_open and
 * siftfs_open return belongs to the caller, who gives it back with siftfs_volume_close and
 * siftfs_close, the files before their volume.
 *
 * docs/design/operations.md says what each call promises after a crash. */

#ifndef SIFTFS_H
#define SIFTFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* A volume that is opened in this process, and a regular file in it. */
typedef struct siftfs_volume siftfs_volume;
typedef struct siftfs_file siftfs_file;

/* Opens the volume in a file or on a block device, exclusively, and recovers it first if it was
 * not closed. NULL: ENOENT; EBUSY another process has it, or it is no volume; EUCLEAN it is
 * damaged. */
siftfs_volume *siftfs_volume_open(const char *path);

/* Brings everything into the ext4 area and closes. The volume is gone whatever the result is; -1 if
 * it is not plain ext4 now: the next open recovers what was durable. */
int siftfs_volume_close(siftfs_volume *volume);

/* Opens a regular file for reading and writing, by its absolute path; creates it with this mode if
 * flags has O_CREAT, and it must not be there then. No other flag is known: EINVAL. */
siftfs_file *siftfs_open(siftfs_volume *volume, const char *path, int flags, mode_t mode);

/* Closes a file. It promises nothing about its bytes. */
void siftfs_close(siftfs_file *file);

/* As pread(2) and pwrite(2), but writes all bytes or fails. */
ssize_t siftfs_pread(siftfs_file *file, void *into, size_t length, uint64_t offset);
ssize_t siftfs_pwrite(siftfs_file *file, const void *from, size_t length, uint64_t offset);

/* As fsync(2) and fdatasync(2): one write and one flush where that is possible. */
int siftfs_fsync(siftfs_file *file);
int siftfs_fdatasync(siftfs_file *file);

/* As siftfs_publish, with absolute paths; from_fd is not used, and from must not be NULL. */
int siftfs_volume_publish(siftfs_volume *volume, const struct siftfs_name *names, size_t count,
                          enum siftfs_level level);

#ifdef __cplusplus
}
#endif

#endif
