use std::path::Path;

use super::super::{ACL_ID_NONE, AclEntry, AclTag, MAX_VALUE};
use super::*;
use crate::dir::ftype;
use crate::test_image::{Image, tool, with_kernel};
use crate::testing::MemStore;
use rustix::fs::{XattrFlags, getxattr, listxattr, setxattr};
use siftfs_base::{Error, Timestamp};

const NOW: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 5 };

/// A volume with files `0`, `1`, ... in its root.
struct Volume {
    image: Image,
    store: MemStore,
    fs: Fs,
    files: Vec<Inode>,
}

impl Volume {
    fn new(files: usize) -> Self {
        let image = Image::make(32);
        let mut store = image.load();
        let mut fs = Fs::open(&mut store).unwrap();
        let mut root = fs.read_inode(&mut store, 2).unwrap();
        let mut all = Vec::new();
        for i in 0..files {
            let ino = fs.alloc_inode(&mut store, 2, false).unwrap();
            let mut inode = fs.new_inode(ino, ino, 0o100_644, NOW);
            inode.nlink = 1;
            let name = format!("{i}");
            fs.dir_insert(&mut store, &mut root, name.as_bytes(), ino, ftype::REGULAR).unwrap();
            fs.write_inode(&mut store, &inode).unwrap();
            all.push(inode);
        }
        fs.write_inode(&mut store, &root).unwrap();
        Self { image, store, fs, files: all }
    }

    fn set(&mut self, file: usize, name: &[u8], value: &[u8]) -> Result<()> {
        let inode = &mut self.files[file];
        self.fs.xattr_set(&mut self.store, inode, name, value, SetMode::Any)
    }

    fn get(&mut self, file: usize, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.layout.xattr_get(&mut self.store, &self.files[file], name)
    }

    fn check(&mut self) {
        for f in &self.files {
            self.fs.write_inode(&mut self.store, f).unwrap();
        }
        self.image.save(&mut self.fs, &mut self.store);
        self.image.check();
    }
}

fn kernel_value(path: &Path, name: &[u8]) -> Vec<u8> {
    let mut buf = vec![0; 65_536];
    let len = getxattr(path, name, &mut buf).unwrap();
    buf.truncate(len);
    buf
}

fn kernel_names(path: &Path) -> Vec<Vec<u8>> {
    let mut buf = vec![0u8; 65_536];
    let len = listxattr(path, &mut buf).unwrap();
    let mut names: Vec<Vec<u8>> =
        buf[..len].split(|b| *b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
    names.sort();
    names
}

fn acl() -> Acl {
    let entry = |tag, perm, id| AclEntry { tag, perm, id };
    Acl::new(vec![
        entry(AclTag::UserObj, 6, ACL_ID_NONE),
        entry(AclTag::User, 6, 1000),
        entry(AclTag::GroupObj, 4, ACL_ID_NONE),
        entry(AclTag::Mask, 4, ACL_ID_NONE),
        entry(AclTag::Other, 4, ACL_ID_NONE),
    ])
    .unwrap()
}

#[test]
fn what_we_write_the_kernel_reads() {
    let mut v = Volume::new(60);
    let mut rng = siftfs_base::Rng::new(3);
    let mut model = vec![std::collections::BTreeMap::<Vec<u8>, Vec<u8>>::new(); 60];
    for _ in 0..3000 {
        let (file, id) = (rng.below(60) as usize, rng.below(12));
        let space = ["user.", "trusted.", "security."][id as usize % 3];
        let mut name = format!("{space}{id}").into_bytes();
        // Non-ASCII names are hashed too.
        name.extend(vec![if id % 4 == 0 { 0xe9 } else { b'n' }; id as usize * 5]);
        if rng.below(4) == 0 {
            let gone = v.fs.xattr_remove(&mut v.store, &mut v.files[file], &name);
            let had = model[file].remove(&name).is_some();
            assert_eq!(gone, if had { Ok(()) } else { Err(errno(libc::ENODATA)) });
            continue;
        }
        let len = [0, 1, 3, 8, 30, 90, 400, 2000][rng.below(8) as usize];
        let value: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
        match v.set(file, &name, &value) {
            Ok(()) => drop(model[file].insert(name, value)),
            Err(e) => assert_eq!(e, errno(libc::ENOSPC)),
        }
    }
    v.set(0, b"system.posix_acl_access", &acl().to_xattr()).unwrap();
    v.check();
    v.store.forget_verified();
    for (file, want) in model.iter().enumerate() {
        for (name, value) in want {
            assert_eq!(&v.get(file, name).unwrap(), value);
        }
    }
    with_kernel(&v.image.file, true, |root| {
        for (file, want) in model.iter().enumerate() {
            let path = root.join(format!("{file}"));
            let mut names: Vec<Vec<u8>> = want.keys().cloned().collect();
            if file == 0 {
                names.push(b"system.posix_acl_access".to_vec());
                names.sort();
                assert_eq!(kernel_value(&path, b"system.posix_acl_access"), acl().to_xattr());
            }
            assert_eq!(kernel_names(&path), names);
            for (name, value) in want {
                assert_eq!(&kernel_value(&path, name), value);
            }
        }
    });
    for f in 0..60 {
        v.fs.xattr_release(&mut v.store, &mut v.files[f]).unwrap();
        assert_eq!((v.files[f].blocks, v.files[f].file_acl), (0, 0));
    }
    v.check();
}

#[test]
fn what_the_kernel_writes_we_read_and_change() {
    let mut v = Volume::new(4);
    v.check();
    let values: [(&str, Vec<u8>); 4] = [
        ("user.small", vec![1; 5]),
        ("user.large", vec![2; 3000]),
        ("trusted.middle", vec![3; 300]),
        ("user.none", vec![]),
    ];
    let ran = with_kernel(&v.image.file, false, |root| {
        // Two files with the same attributes share their block.
        for file in ["0", "1"] {
            for (name, value) in &values {
                setxattr(root.join(file), *name, value, XattrFlags::empty()).unwrap();
            }
        }
        let name = "system.posix_acl_access";
        setxattr(root.join("2"), name, &acl().to_xattr(), XattrFlags::empty()).unwrap();
    });
    if !ran {
        return;
    }
    v.store = v.image.load();
    v.fs = Fs::open(&mut v.store).unwrap();
    for f in &mut v.files {
        *f = v.fs.read_inode(&mut v.store, f.ino).unwrap();
    }
    for file in 0..2 {
        for (name, value) in &values {
            assert_eq!(&v.get(file, name.as_bytes()).unwrap(), value);
        }
        assert_eq!(v.fs.layout.xattr_list(&mut v.store, &v.files[file]).unwrap().len(), 4);
    }
    assert_eq!(v.get(2, b"system.posix_acl_access").unwrap(), acl().to_xattr());
    assert_eq!(v.get(3, b"user.small"), Err(errno(libc::ENODATA)));
    assert_eq!(v.files[0].file_acl, v.files[1].file_acl, "the kernel shares equal blocks");
    let shared = v.files[0].file_acl;
    assert_eq!(references(v.store.read(shared).unwrap()), 2);

    // A change that stays in the inode leaves the shared block alone; others copy it.
    v.set(0, b"user.small", b"other").unwrap();
    assert_eq!(v.files[0].file_acl, shared);
    v.set(0, b"user.large", b"now short").unwrap();
    assert_ne!(v.files[0].file_acl, shared);
    assert_eq!(references(v.store.read(shared).unwrap()), 1);
    assert_eq!(v.get(1, b"user.large").unwrap(), vec![2; 3000]);
    v.check();
    v.fs.xattr_release(&mut v.store, &mut v.files[1]).unwrap();
    assert_eq!(v.files[1].file_acl, 0);
    v.check();
    with_kernel(&v.image.file, true, |root| {
        assert_eq!(kernel_value(&root.join("0"), b"user.large"), b"now short");
        assert_eq!(kernel_value(&root.join("0"), b"trusted.middle"), vec![3; 300]);
    });
}

#[test]
fn modes_names_and_limits() {
    let mut v = Volume::new(1);
    let mut set = |name: &[u8], value: &[u8], mode| {
        v.fs.xattr_set(&mut v.store, &mut v.files[0], name, value, mode)
    };
    assert_eq!(set(b"user.a", b"1", SetMode::Replace), Err(errno(libc::ENODATA)));
    set(b"user.a", b"1", SetMode::Create).unwrap();
    assert_eq!(set(b"user.a", b"2", SetMode::Create), Err(errno(libc::EEXIST)));
    set(b"user.a", b"2", SetMode::Replace).unwrap();
    assert_eq!(set(b"odd.a", b"2", SetMode::Any), Err(errno(libc::EOPNOTSUPP)));
    let bad_acl = set(b"system.posix_acl_access", b"nonsense", SetMode::Any);
    assert_eq!(bad_acl, Err(errno(libc::EOPNOTSUPP)));
    set(b"user.b", &vec![7; MAX_VALUE], SetMode::Any).unwrap();
    let before = v.files[0].clone();
    assert_eq!(v.set(0, b"user.c", &[1; 100]), Err(errno(libc::ENOSPC)));
    assert_eq!(v.files[0], before);
    assert_eq!(v.get(0, b"user.a").unwrap(), b"2");
    v.check();
    let listed = tool("debugfs", &["-R", "ea_list <12>"], &v.image.file);
    assert!(listed.contains("user.a") && listed.contains("user.b"), "{listed}");

    let nr = v.files[0].file_acl;
    v.store.raw(nr)[2000] ^= 1;
    v.store.forget_verified();
    assert!(matches!(v.get(0, b"user.b"), Err(Error::Corrupt { .. })));
    assert!(matches!(v.set(0, b"user.b", b""), Err(Error::Corrupt { .. })));
    v.files[0].file_acl = 1;
    assert!(matches!(v.get(0, b"user.b"), Err(Error::Corrupt { .. })));
}
