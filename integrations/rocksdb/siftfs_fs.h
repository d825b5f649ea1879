// RocksDB on a volume of SiftFS.

#ifndef SIFTFS_INTEGRATIONS_ROCKSDB_FS_H
#define SIFTFS_INTEGRATIONS_ROCKSDB_FS_H

#include <rocksdb/file_system.h>

#include <memory>
#include <string>

#include "../common/volume.h"

namespace siftfs {

// Opens the volume at `address` and gives a FileSystem whose paths are those in the volume. It is
// closed with the last reference to the FileSystem, when the last file is closed, and is plain ext4
// then. rocksdb::NewCompositeEnv makes an Env of it.
//
// A program that has the library libsiftfs_rocksdb.so (linked, or by LD_PRELOAD) finds the same by
// the name siftfs://ADDRESS, wherever RocksDB takes a URI of a file system or an Env (--fs_uri of
// its tools); SIFTFS_OPS=single in its environment asks for single operations.
rocksdb::IOStatus NewFileSystem(const std::string& address, Ops ops,
                                std::shared_ptr<rocksdb::FileSystem>* into);

}  // namespace siftfs

#endif
