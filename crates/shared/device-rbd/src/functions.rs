//! The functions of librados and librbd that this crate calls, by hand: no crate for them lives.
//! `declared.c` has the C compiler compare each with the libraries' headers.
#![allow(unsafe_code)]

use libloading::Library;
use siftfs_base::{Error, Result};
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// `rados_t`: a connection to a cluster.
pub(crate) type Rados = *mut c_void;
/// `rados_ioctx_t`: a pool, by a connection.
pub(crate) type IoContext = *mut c_void;
/// `rados_xattrs_iter_t`: the attributes of an object.
pub(crate) type Attributes = *mut c_void;
/// `rbd_image_t`: an open image.
pub(crate) type RawImage = *mut c_void;
/// `rbd_completion_t`: an access that was begun.
pub(crate) type Completion = *mut c_void;
/// `rbd_callback_t`.
pub(crate) type Callback = extern "C" fn(Completion, *mut c_void);

/// `RBD_LOCK_MODE_EXCLUSIVE`.
pub(crate) const EXCLUSIVE: c_int = 0;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
pub(crate) const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;

/// The features that a new image has: layering, the exclusive lock, the map of its objects, quick
/// differences and deep flattening, which are Ceph's own default.
pub(crate) const FEATURES: u64 = 0b11_1101;

/// The begin of `rbd_image_info_t`, with room for the rest of any release's.
#[repr(C)]
pub(crate) struct Info {
    pub size: u64,
    pub object_size: u64,
    pub objects: u64,
    pub order: c_int,
    _more: [u8; 228],
}

impl Info {
    pub(crate) const EMPTY: Self =
        Self { size: 0, object_size: 0, objects: 0, order: 0, _more: [0; 228] };
}

/// `rbd_image_watcher_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Watcher {
    pub address: *mut c_char,
    pub id: i64,
    pub cookie: u64,
}

impl Watcher {
    pub(crate) const EMPTY: Self = Self { address: std::ptr::null_mut(), id: 0, cookie: 0 };
}

/// `rbd_image_spec_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Named {
    pub id: *mut c_char,
    pub name: *mut c_char,
}

impl Named {
    pub(crate) const EMPTY: Self = Self { id: std::ptr::null_mut(), name: std::ptr::null_mut() };
}

/// Declares the functions of the libraries, and how they are looked up.
macro_rules! functions {
    ($($library:ident { $($name:ident($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions, as long as the process lives.
        pub(crate) struct Functions {
            $($(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Functions {
            fn load(
                rados: &'static Library, rbd: &'static Library) -> std::result::Result<Self, libloading::Error> {
                let libraries = Libraries { rados, rbd };
                Ok(Self {
                    $($(
                        // SAFETY: the function has this type by the library's header, with which
                        // `declared.c` compares it, and the library is never unloaded.
                        $name: unsafe {
                            *libraries.$library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                concat!(stringify!($name), "\0").as_bytes(),
                            )?
                        },
                    )*)*
                })
            }

            /// Functions each of which ends the process when it is called, for tests, which put
            /// others in the places of those that they need.
            #[cfg(test)]
            pub(crate) fn none() -> Self {
                Self {
                    $($(
                        // SAFETY: a function pointer is made of another one. It is only called by
                        // a test that has gone wrong, and then returns nothing.
                        $name: unsafe {
                            std::mem::transmute::<
                                extern "C" fn() -> !,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(uncalled)
                        },
                    )*)*
                }
            }
        }
    };
}

/// Stands for a function that a test does not call.
#[cfg(test)]
extern "C" fn uncalled() -> ! {
    std::process::abort()
}

struct Libraries {
    rados: &'static Library,
    rbd: &'static Library,
}

functions! {
    rados {
    rados_create2(*mut Rados, *const c_char, *const c_char, u64) -> c_int;
    rados_conf_read_file(Rados, *const c_char) -> c_int;
    rados_conf_parse_env(Rados, *const c_char) -> c_int;
    rados_conf_set(Rados, *const c_char, *const c_char) -> c_int;
    rados_conf_get(Rados, *const c_char, *mut c_char, usize) -> c_int;
    rados_connect(Rados) -> c_int;
    rados_shutdown(Rados);
    rados_cluster_fsid(Rados, *mut c_char, usize) -> c_int;
    rados_getaddrs(Rados, *mut *mut c_char) -> c_int;
    rados_buffer_free(*mut c_char);
    rados_mon_command(
        Rados, *const *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize,
        *mut *mut c_char, *mut usize
    ) -> c_int;
    rados_wait_for_latest_osdmap(Rados) -> c_int;
    rados_ioctx_create(Rados, *const c_char, *mut IoContext) -> c_int;
    rados_ioctx_destroy(IoContext);
    rados_ioctx_set_namespace(IoContext, *const c_char);
    rados_remove(IoContext, *const c_char) -> c_int;
    rados_setxattr(IoContext, *const c_char, *const c_char, *const c_char, usize) -> c_int;
    rados_rmxattr(IoContext, *const c_char, *const c_char) -> c_int;
    rados_getxattrs(IoContext, *const c_char, *mut Attributes) -> c_int;
    rados_getxattrs_next(
        Attributes, *mut *const c_char, *mut *const c_char, *mut usize
    ) -> c_int;
    rados_getxattrs_end(Attributes);
    rados_read(IoContext, *const c_char, *mut c_char, usize, u64) -> c_int;
    rados_write_full(IoContext, *const c_char, *const c_char, usize) -> c_int;
    rados_append(IoContext, *const c_char, *const c_char, usize) -> c_int;
    rados_stat(IoContext, *const c_char, *mut u64, *mut i64) -> c_int;
    }
    rbd {
    rbd_list2(IoContext, *mut Named, *mut usize) -> c_int;
    rbd_image_spec_list_cleanup(*mut Named, usize);
    rbd_create2(IoContext, *const c_char, u64, u64, *mut c_int) -> c_int;
    rbd_rename(IoContext, *const c_char, *const c_char) -> c_int;
    rbd_remove(IoContext, *const c_char) -> c_int;
    rbd_open(IoContext, *const c_char, *mut RawImage, *const c_char) -> c_int;
    rbd_open_read_only(IoContext, *const c_char, *mut RawImage, *const c_char) -> c_int;
    rbd_close(RawImage) -> c_int;
    rbd_stat(RawImage, *mut Info, usize) -> c_int;
    rbd_resize(RawImage, u64) -> c_int;
    rbd_get_size(RawImage, *mut u64) -> c_int;
    rbd_get_features(RawImage, *mut u64) -> c_int;
    rbd_get_id(RawImage, *mut c_char, usize) -> c_int;
    rbd_lock_acquire(RawImage, c_int) -> c_int;
    rbd_lock_release(RawImage) -> c_int;
    rbd_lock_get_owners(RawImage, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
    rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
    rbd_list_lockers(
        RawImage, *mut c_int, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char,
        *mut usize, *mut c_char, *mut usize
    ) -> isize;
    rbd_lock_break(RawImage, c_int, *const c_char) -> c_int;
    rbd_watchers_list(RawImage, *mut Watcher, *mut usize) -> c_int;
    rbd_watchers_list_cleanup(*mut Watcher, usize);
    rbd_aio_create_completion(*mut c_void, Callback, *mut Completion) -> c_int;
    rbd_aio_get_return_value(Completion) -> isize;
    rbd_aio_release(Completion);
    rbd_aio_write(RawImage, u64, usize, *const c_char, Completion) -> c_int;
    rbd_aio_read(RawImage, u64, usize, *mut c_char, Completion) -> c_int;
    rbd_aio_discard(RawImage, u64, u64, Completion) -> c_int;
    rbd_aio_flush(RawImage, Completion) -> c_int;
    }
}

/// The functions, of libraries that are loaded at the first call and never unloaded.
///
/// # Errors
/// Refused, naming the library that is missing or too old.
pub(crate) fn functions() -> Result<&'static Functions> {
    static LOADED: OnceLock<std::result::Result<Functions, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let rados = open("librados.so.2")?;
        let rbd = open("librbd.so.1")?;
        Functions::load(rados, rbd).map_err(|e| format!("the library of Ceph is too old: {e}"))
    });
    loaded.as_ref().map_err(|what| Error::Refused(what.clone()))
}

fn open(name: &str) -> std::result::Result<&'static Library, String> {
    // SAFETY: the constructors of these libraries do nothing to this process but initialise
    // themselves; no thread waits for anything that they lock.
    let library = unsafe { Library::new(name) }.map_err(|e| {
        format!("rbd: needs {name}, which cannot be loaded ({e}): install Debian's librbd1")
    })?;
    Ok(Box::leak(Box::new(library)))
}
