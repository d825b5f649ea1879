/* Each function that functions.rs declares, with the type that it declares. A library whose header
 * has another one does not compile. Nothing here is called: the library is loaded at run time. */

#include <rados/librados.h>
#include <rbd/librbd.h>
#include <stddef.h>

#define SAME(function, ...)                                                                \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&function), __VA_ARGS__), \
                   #function " is not what functions.rs declares")

/* The handles are pointers; functions.rs tells them apart by types of its own. */
_Static_assert(sizeof(rados_t) == sizeof(void *), "rados_t");
_Static_assert(sizeof(rados_ioctx_t) == sizeof(void *), "rados_ioctx_t");
_Static_assert(sizeof(rados_xattrs_iter_t) == sizeof(void *), "rados_xattrs_iter_t");
_Static_assert(sizeof(rbd_image_t) == sizeof(void *), "rbd_image_t");
_Static_assert(sizeof(rbd_completion_t) == sizeof(void *), "rbd_completion_t");
_Static_assert(sizeof(rbd_lock_mode_t) == sizeof(int), "rbd_lock_mode_t");
_Static_assert(RBD_LOCK_MODE_EXCLUSIVE == 0, "RBD_LOCK_MODE_EXCLUSIVE");
_Static_assert(RBD_FEATURE_EXCLUSIVE_LOCK == 4, "RBD_FEATURE_EXCLUSIVE_LOCK");
_Static_assert(RBD_FEATURES_DEFAULT == 61, "RBD_FEATURES_DEFAULT");

/* Info, Watcher and Named of functions.rs. */
_Static_assert(offsetof(rbd_image_spec_t, id) == 0, "id");
_Static_assert(offsetof(rbd_image_spec_t, name) == sizeof(char *), "name");
_Static_assert(sizeof(rbd_image_spec_t) == 2 * sizeof(char *), "rbd_image_spec_t");
_Static_assert(offsetof(rbd_image_info_t, size) == 0, "size");
_Static_assert(offsetof(rbd_image_info_t, obj_size) == 8, "obj_size");
_Static_assert(offsetof(rbd_image_info_t, num_objs) == 16, "num_objs");
_Static_assert(offsetof(rbd_image_info_t, order) == 24, "order");
_Static_assert(sizeof(rbd_image_info_t) <= 256, "rbd_image_info_t");
_Static_assert(offsetof(rbd_image_watcher_t, addr) == 0, "addr");
_Static_assert(offsetof(rbd_image_watcher_t, id) == 8, "id");
_Static_assert(offsetof(rbd_image_watcher_t, cookie) == 16, "cookie");
_Static_assert(sizeof(rbd_image_watcher_t) == 24, "rbd_image_watcher_t");

SAME(rados_create2, int (*)(rados_t *, const char *const, const char *const, uint64_t));
SAME(rados_conf_read_file, int (*)(rados_t, const char *));
SAME(rados_conf_parse_env, int (*)(rados_t, const char *));
SAME(rados_conf_set, int (*)(rados_t, const char *, const char *));
SAME(rados_conf_get, int (*)(rados_t, const char *, char *, size_t));
SAME(rados_connect, int (*)(rados_t));
SAME(rados_shutdown, void (*)(rados_t));
SAME(rados_cluster_fsid, int (*)(rados_t, char *, size_t));
SAME(rados_getaddrs, int (*)(rados_t, char **));
SAME(rados_buffer_free, void (*)(char *));
SAME(rados_mon_command, int (*)(rados_t, const char **, size_t, const char *, size_t, char **, size_t *,
                                char **, size_t *));
SAME(rados_wait_for_latest_osdmap, int (*)(rados_t));
SAME(rados_ioctx_create, int (*)(rados_t, const char *, rados_ioctx_t *));
SAME(rados_ioctx_destroy, void (*)(rados_ioctx_t));
SAME(rados_ioctx_set_namespace, void (*)(rados_ioctx_t, const char *));
SAME(rados_remove, int (*)(rados_ioctx_t, const char *));
SAME(rados_setxattr, int (*)(rados_ioctx_t, const char *, const char *, const char *, size_t));
SAME(rados_rmxattr, int (*)(rados_ioctx_t, const char *, const char *));
SAME(rados_getxattrs, int (*)(rados_ioctx_t, const char *, rados_xattrs_iter_t *));
SAME(rados_getxattrs_next, int (*)(rados_xattrs_iter_t, const char **, const char **, size_t *));
SAME(rados_getxattrs_end, void (*)(rados_xattrs_iter_t));
SAME(rados_read, int (*)(rados_ioctx_t, const char *, char *, size_t, uint64_t));
SAME(rados_write_full, int (*)(rados_ioctx_t, const char *, const char *, size_t));
SAME(rados_append, int (*)(rados_ioctx_t, const char *, const char *, size_t));
SAME(rados_stat, int (*)(rados_ioctx_t, const char *, uint64_t *, time_t *));
_Static_assert(sizeof(time_t) == sizeof(int64_t), "time_t");
SAME(rbd_list2, int (*)(rados_ioctx_t, rbd_image_spec_t *, size_t *));
SAME(rbd_image_spec_list_cleanup, void (*)(rbd_image_spec_t *, size_t));
SAME(rbd_create2, int (*)(rados_ioctx_t, const char *, uint64_t, uint64_t, int *));
SAME(rbd_rename, int (*)(rados_ioctx_t, const char *, const char *));
SAME(rbd_remove, int (*)(rados_ioctx_t, const char *));
SAME(rbd_open, int (*)(rados_ioctx_t, const char *, rbd_image_t *, const char *));
SAME(rbd_open_read_only, int (*)(rados_ioctx_t, const char *, rbd_image_t *, const char *));
SAME(rbd_close, int (*)(rbd_image_t));
SAME(rbd_stat, int (*)(rbd_image_t, rbd_image_info_t *, size_t));
SAME(rbd_resize, int (*)(rbd_image_t, uint64_t));
SAME(rbd_get_size, int (*)(rbd_image_t, uint64_t *));
SAME(rbd_get_features, int (*)(rbd_image_t, uint64_t *));
SAME(rbd_get_id, int (*)(rbd_image_t, char *, size_t));
SAME(rbd_lock_acquire, int (*)(rbd_image_t, rbd_lock_mode_t));
SAME(rbd_lock_release, int (*)(rbd_image_t));
SAME(rbd_lock_get_owners, int (*)(rbd_image_t, rbd_lock_mode_t *, char **, size_t *));
SAME(rbd_lock_get_owners_cleanup, void (*)(char **, size_t));
SAME(rbd_list_lockers, ssize_t (*)(rbd_image_t, int *, char *, size_t *, char *, size_t *, char *, size_t *, char *,
                                   size_t *));
SAME(rbd_lock_break, int (*)(rbd_image_t, rbd_lock_mode_t, const char *));
SAME(rbd_watchers_list, int (*)(rbd_image_t, rbd_image_watcher_t *, size_t *));
SAME(rbd_watchers_list_cleanup, void (*)(rbd_image_watcher_t *, size_t));
SAME(rbd_aio_create_completion, int (*)(void *, rbd_callback_t, rbd_completion_t *));
SAME(rbd_aio_get_return_value, ssize_t (*)(rbd_completion_t));
SAME(rbd_aio_release, void (*)(rbd_completion_t));
SAME(rbd_aio_write, int (*)(rbd_image_t, uint64_t, size_t, const char *, rbd_completion_t));
SAME(rbd_aio_read, int (*)(rbd_image_t, uint64_t, size_t, char *, rbd_completion_t));
SAME(rbd_aio_discard, int (*)(rbd_image_t, uint64_t, uint64_t, rbd_completion_t));
SAME(rbd_aio_flush, int (*)(rbd_image_t, rbd_completion_t));
